"""A router of Ray Serve that decides as labkit's own routers do, and the autoscaler beside it.

Ray makes one `ByPolicy` for each front: what it knows of loads and prefixes is what this front
has sent. Ray copies this module's text to where it is needed, so it holds no state of its own.
"""

from ray.serve.request_router import PendingRequest, RequestRouter

from labkit.fleet.ray_serve.about import About
from labkit.fleet.routing import ROUTERS, Replica
from labkit.fleet.scaling import Limits, Load, wanted_replicas

LEAST_BLOCKS = 4  # of a beginning that draws a request: more than chat templates begin with


class ByPolicy(RequestRouter):
    """Asks a policy of `labkit.fleet.routing`, and tells it of dispatches and ends.

    `kwargs["about"]` of a call is what the policy sees. A call counts from the moment it is
    assigned, not from when its replica has accepted it: of ten that come at once the tenth must
    know of nine.
    """

    def initialize_state(self, policy: str = "prefix", full: int = 64) -> None:
        options = {"least_blocks": LEAST_BLOCKS} if policy == "prefix" else {}
        self.policy = ROUTERS[policy](**options)
        self.full = full  # so many requests an engine runs at once
        self.known: dict[str, Replica] = {}  # those that are there, by name
        self.assigned: dict[tuple[str, str], tuple[About, Replica]] = {}  # (call, replica)

    async def choose_replicas(
        self, candidate_replicas: list, pending_request: PendingRequest | None = None
    ) -> list[list]:
        """The policy's choice first, all others after it: they get what the first can't take,
        those with the model before those without."""
        about = pending_request and pending_request.kwargs.get("about")
        if not about or not candidate_replicas:
            return [candidate_replicas]
        there = {one.replica_id.unique_id: one for one in candidate_replicas}
        self.note(there)
        eligible = self.eligible(there, pending_request.metadata.multiplexed_model_id)
        chosen = self.choose(about, eligible)
        self.assign(pending_request, about, chosen)
        pending_request.routing_context.should_backoff = True  # nobody takes it: wait a moment
        first = there.pop(chosen.name)
        return [
            [first],
            [one for name, one in there.items() if name in eligible],
            [one for name, one in there.items() if name not in eligible],
        ]

    def note(self, there: dict) -> None:
        """Writes down who is there now, each in the place that it has: policies remember places,
        and Ray's order changes. It never gives the name of a lost replica to another."""
        if gone := self.known.keys() - there.keys():
            self.policy.forget(gone)
        self.known = {name: one for name, one in self.known.items() if name in there}
        for name in there:
            self.known.setdefault(name, Replica(name))

    def eligible(self, there: dict, model: str) -> set[str]:
        """Who may be chosen: those that have the model in memory, or load it. When each of them
        has its hands full, those that haven't: they will load it too."""
        having = {name for name, one in there.items() if model in one.multiplexed_model_ids}
        with_room = {name for name in there if self.known[name].num_requests < self.full}
        if not having:
            return {*there}
        return having if having & with_room else with_room or having

    def choose(self, about: About, eligible: set[str]) -> Replica:
        replicas = [*self.known.values()]
        for replica in replicas:
            replica.healthy = replica.name in eligible
        return replicas[self.policy.choose(about, replicas)]

    def assign(self, pending: PendingRequest, about: About, replica: Replica) -> None:
        key = pending.metadata.internal_request_id, replica.name
        if key not in self.assigned:
            self.assigned[key] = about, replica
            self.policy.dispatched(about, replica)
            pending.future.add_done_callback(lambda done: done.cancelled() and self.end(key))

    def end(self, key: tuple[str, str]) -> None:
        if key in self.assigned:
            self.policy.finished(*self.assigned.pop(key))

    def on_request_routed(self, pending_request, replica_id, result) -> None:
        """It was accepted: by whom the policy chose, or by another because that one was full."""
        call, name = pending_request.metadata.internal_request_id, replica_id.unique_id
        for key in [key for key in self.assigned if key[0] == call and key[1] != name]:
            about, _ = self.assigned[key]
            self.end(key)
            if name in self.known:
                self.assign(pending_request, about, self.known[name])

    def on_request_completed(self, replica_id, internal_request_id: str) -> None:
        self.end((internal_request_id, replica_id.unique_id))


class ByLoad:
    """Ray asks it every moment how many replicas there should be; see `scaling`."""

    def __init__(self, requests_each: float = 8.0):
        self.requests_each = requests_each

    def __call__(self, context) -> tuple[int, dict]:
        usage = (context.aggregated_metrics or {}).get("kv_usage", {}).values()
        wanted = context.target_num_replicas
        mean = sum(usage) / max(len(usage), wanted, 1)  # who is being started holds nothing yet
        load = Load(wanted, round(context.total_num_requests), mean)
        least, most = context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas
        return wanted_replicas(load, Limits(least, most, self.requests_each)), {}
