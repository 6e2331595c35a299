def choose(self, request, replicas: Sequence[Replica]) -> int:
    dedicated = self.least_loaded(replicas, DEDICATED)
    shared = self.least_loaded(replicas, SHARED)
    if dedicated is None and shared is None:
        raise nobody(replicas)
    if dedicated is None:
        return shared
    if shared is None:
        return dedicated
    there, here = replicas[dedicated].num_tokens, replicas[shared].num_tokens
    if self.is_urgent(request):
        return shared if self.spill.urgent_above <= there > here else dedicated
    return dedicated if there < min(self.spill.lend_below, here) else shared
