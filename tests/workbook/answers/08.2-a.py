def _find_room(self, plan: StepPlan, request: Request) -> tuple[list[int], int] | None:
    while True:
        shared, num_cached = self.books.find_computed(request, self.running)
        missing = self.books.missing(request, shared, num_cached)
        has_slot = len(self.running) < self.max_num_seqs
        if has_slot and missing <= 0:
            return shared, num_cached
        candidates = [r for r in self.running.values() if self.policy.may_preempt(request, r)]
        if not candidates:
            return None
        left = dict(enumerate(self.pool.ref_counts))
        for victim in candidates:
            for block in victim.block_table:
                left[block] -= 1
        touched = {block for victim in candidates for block in victim.block_table}
        gained = [b for b in touched if left[b] == 0 and b not in shared]
        if len(gained) < missing:
            return None
        self._preempt(plan, self.policy.victim(candidates))
