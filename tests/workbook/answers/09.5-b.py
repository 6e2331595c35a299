def choose(self, request, replicas: Sequence[Replica]) -> int:
    key = self.key(request)
    if not key:
        return self.others.choose(request, replicas)
    if len(self.names) < len(replicas):
        self.names = [number_of(replica.name) for replica in replicas]
        self.found = OrderedDict()
    if not any(replica.healthy for replica in replicas):
        raise nobody(replicas)
    if self.found.get(key) is None:
        self.found[key] = self._best(key, list(range(len(replicas))))
        if len(self.found) == MOST_KEYS + 1:
            del self.found[next(iter(self.found))]
    if replicas[self.found[key]].healthy:
        return self.found[key]
    return self._best(key, [i for i in range(len(replicas)) if replicas[i].healthy])
