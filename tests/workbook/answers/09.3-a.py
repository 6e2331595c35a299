def choose(self, request, replicas: Sequence[Replica]) -> int:
    least = self.others.choose(request, replicas)
    healthy = {replica.name: i for i, replica in enumerate(replicas) if replica.healthy}
    warm = [healthy[name] for name in self.longest(request, set(healthy))]
    if warm:
        best = min(sorted(warm), key=lambda i: replicas[i].load)
        if replicas[best].num_tokens <= replicas[least].num_tokens + self.most_ahead:
            return best
    return least
