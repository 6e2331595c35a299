def _preempt(self, plan: StepPlan, victim: Request) -> None:
    chunk = plan.chunks.pop(victim.request_id, None)
    if chunk is not None:
        plan.budget += chunk.num_tokens
    self.running = {k: r for k, r in self.running.items() if r is not victim}
    if not self.books.can_swap_out(plan, victim) or not self.preemption.swaps(victim, self.pace):
        self.books.release(victim)
    else:
        self.books.swap_out(plan, victim)
    victim.num_preemptions = victim.num_preemptions + 1
    victim.state = State.PREEMPTED
    plan.preempted = [*plan.preempted, victim]
    self.policy.push(victim, first=True)
