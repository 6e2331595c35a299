def choose(self, request, replicas: Sequence[Replica]) -> int:
    key = self.key(request)
    if not key:
        return self.others.choose(request, replicas)
    healthy = [i for i, replica in enumerate(replicas) if replica.healthy]
    if not healthy:
        raise nobody(replicas)
    if len(self.names) != len(replicas):
        self.names = [number_of(replica.name) for replica in replicas]
        self.found.clear()
    if key not in self.found:
        self.found[key] = self._best(key, range(len(replicas)))
        while len(self.found) > MOST_KEYS:
            self.found.popitem(last=False)
    best = self.found[key]
    return best if replicas[best].healthy else self._best(key, healthy)
