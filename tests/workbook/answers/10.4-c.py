def choose(self, request, replicas: Sequence[Replica]) -> int:
    def best(pool):
        own = [(r.load, i) for i, r in enumerate(replicas) if r.pool == pool and r.healthy]
        return min(own)[1] if own else None

    urgent = self.is_urgent(request)
    home, away = (best(DEDICATED), best(SHARED)) if urgent else (best(SHARED), best(DEDICATED))
    if away is None:
        if home is None:
            raise nobody(replicas)
        return home
    if home is None:
        return away
    if replicas[away].num_tokens >= replicas[home].num_tokens:
        return home
    if urgent and replicas[home].num_tokens < self.spill.urgent_above:
        return home
    if not urgent and replicas[away].num_tokens >= self.spill.lend_below:
        return home
    return away
