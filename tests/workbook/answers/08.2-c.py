def _find_room(self, plan: StepPlan, request: Request) -> tuple[list[int], int] | None:
    shared, num_cached = self.books.find_computed(request, self.running)
    short = self.books.missing(request, shared, num_cached)
    if short <= 0 and len(self.running) < self.max_num_seqs:
        return shared, num_cached
    victims = [r for r in self.running.values() if self.policy.may_preempt(request, r)]
    if not victims:
        return None
    tables = [block for victim in victims for block in victim.block_table]
    free = {b for b in tables if tables.count(b) == self.pool.ref_counts[b]} - set(shared)
    if len(free) < short:
        return None
    self._preempt(plan, self.policy.victim(victims))
    return self._find_room(plan, request)
