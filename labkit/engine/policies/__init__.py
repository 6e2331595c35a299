"""Who is served next, and who gives up a place: one small class for each answer.

`FCFS` is the interface, and each other policy says where it differs. To write one of your own:

    class ShortestFirst(InOrder):
        "The fewest tokens left go first; equal ones in order of arrival."

        def key(self, request):
            return request.max_tokens - len(request.output_token_ids)

    Scheduler(pool, policy=ShortestFirst())
"""

import inspect

from labkit.engine.policies.deadline import EarliestDeadline
from labkit.engine.policies.fair import Fair
from labkit.engine.policies.fcfs import FCFS
from labkit.engine.policies.in_order import InOrder
from labkit.engine.policies.priority import Priority

POLICIES = {"fcfs": FCFS, "priority": Priority, "fair": Fair, "deadline": EarliestDeadline}


def make_policy(name: str, **options) -> FCFS:
    """A policy by name. ValueError for a name or an option that there is not."""
    if name not in POLICIES:
        raise ValueError(f"policy {name!r} is not known; accepted are {', '.join(POLICIES)}")
    known = [*inspect.signature(POLICIES[name]).parameters]
    for option in options:
        if option not in known:
            accepted = ", ".join(known) or "none"
            raise ValueError(f"policy {name!r} has no option {option!r}; accepted are {accepted}")
    return POLICIES[name](**options)


__all__ = ["FCFS", "POLICIES", "EarliestDeadline", "Fair", "InOrder", "Priority", "make_policy"]
