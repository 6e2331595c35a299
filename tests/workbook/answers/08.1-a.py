def _preempt(self, plan: StepPlan, victim: Request) -> None:
    victim.state = State.PREEMPTED
    victim.num_preemptions += 1
    plan.preempted.append(victim)
    self.running.pop(victim.request_id)
    plan.remove(victim)
    may_swap = self.books.can_swap_out(plan, victim)
    if may_swap:
        may_swap = self.preemption.swaps(victim, self.pace)
    (self.books.swap_out(plan, victim) if may_swap else self.books.release(victim))
    self.policy.push(victim, True)
