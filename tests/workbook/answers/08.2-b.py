def _find_room(self, plan: StepPlan, request: Request) -> tuple[list[int], int] | None:
    found = self.books.find_computed(request, self.running)
    missing = self.books.missing(request, *found)
    while missing > 0 or len(self.running) >= self.max_num_seqs:
        weaker = [r for r in self.running.values() if self.policy.may_preempt(request, r)]
        tables = Counter()
        for r in weaker:
            tables.update(r.block_table)
        free_then = 0
        for block, holders in tables.items():
            if block not in found[0] and holders == self.pool.ref_counts[block]:
                free_then += 1
        if len(weaker) == 0 or missing > free_then:
            return None
        self._preempt(plan, self.policy.victim(weaker))
        found = self.books.find_computed(request, self.running)
        missing = self.books.missing(request, *found)
    return found
