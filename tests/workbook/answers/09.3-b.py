def choose(self, request, replicas: Sequence[Replica]) -> int:
    healthy = [i for i in range(len(replicas)) if replicas[i].healthy]
    if not healthy:
        raise nobody(replicas)
    names = self.longest(request, {replicas[i].name for i in healthy})
    least = self.others.choose(request, replicas)
    best = None
    for i in healthy:
        if replicas[i].name in names and (best is None or replicas[i].load < replicas[best].load):
            best = i
    if best is None:
        return least
    if replicas[best].num_tokens - replicas[least].num_tokens > self.most_ahead:
        return least
    return best
