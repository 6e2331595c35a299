def choose(self, request, replicas: Sequence[Replica]) -> int:
    pools = [DEDICATED, SHARED]
    urgent = self.is_urgent(request)
    if not urgent:
        pools.reverse()
    found = [self.least_loaded(replicas, pool) for pool in pools]
    there = [index for index in found if index is not None]
    if len(there) < 2:
        if not there:
            raise nobody(replicas)
        return there[0]
    tokens = [replicas[index].num_tokens for index in there]
    if tokens[1] >= tokens[0]:
        return there[0]
    may = tokens[0] >= self.spill.urgent_above if urgent else tokens[1] < self.spill.lend_below
    return there[1] if may else there[0]
