def choose(self, request, replicas: Sequence[Replica]) -> int:
    session = self.key(request)
    if not session:
        return self.others.choose(request, replicas)
    if not replicas:
        raise nobody(replicas)
    if len(replicas) != len(self.names):
        self.names, self.found = [number_of(one.name) for one in replicas], OrderedDict()
    try:
        index = self.found[session]
    except KeyError:
        index = self._best(session, range(len(replicas)))
        self.found[session] = index
        if len(self.found) > MOST_KEYS:
            self.found.popitem(last=False)
    if not replicas[index].healthy:
        alive = [i for i in range(len(replicas)) if replicas[i].healthy]
        if not alive:
            raise nobody(replicas)
        index = self._best(session, alive)
    return index
