def _preempt(self, plan: StepPlan, victim: Request) -> None:
    plan.remove(victim)
    self.running.pop(victim.request_id)
    fits = self.books.can_swap_out(plan, victim)
    if fits and self.preemption.swaps(victim, self.pace):
        self.books.swap_out(plan, victim)
    else:
        self.books.release(victim)
    victim.state, victim.num_preemptions = State.PREEMPTED, victim.num_preemptions + 1
    self.policy.push(victim, first=True)
    plan.preempted += [victim]
