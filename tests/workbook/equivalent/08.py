"""Mutants of the exercises of notebook 08 that do what the reference does, or never end."""

EQUIVALENT = {}

ENDLESS = {  # who is never preempted is chosen again and again
    ("08.2", "line 4: dropped 'self._preempt(plan, self.policy.victim(victims))'"),
}
