def choose(self, request, replicas: Sequence[Replica]) -> int:
    least = self.others.choose(request, replicas)
    most = replicas[least].num_tokens + self.most_ahead
    names = self.longest(request, {r.name for r in replicas if r.healthy})
    warm = [(r.load, i) for i, r in enumerate(replicas) if r.name in names]
    (_, tokens), index = ((None, None), least) if not warm else min(warm)
    return index if replicas[index].num_tokens <= most else least
