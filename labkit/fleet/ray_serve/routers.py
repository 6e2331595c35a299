"""A router of Ray Serve that decides as labkit's own routers do, and the autoscaler beside it.

Ray makes one `ByPolicy` for each front: what it knows of loads and prefixes is what this front
has sent. Ray copies this module's text to where it is needed, so it holds no state of its own.
"""

from ray.serve.request_router import PendingRequest, RequestRouter

from labkit.fleet.ray_serve.about import About
from labkit.fleet.routing import ROUTERS, Replica
from labkit.fleet.scaling import Limits, Load, wanted_replicas


class ByPolicy(RequestRouter):
    """Asks a policy of `labkit.fleet.routing`, and tells it of dispatches and ends.

    `kwargs["about"]` of a call is what the policy sees. A call counts from the moment it is
    assigned, not from when its replica has accepted it: of ten that come at once the tenth must
    know of nine.
    """

    def initialize_state(self, policy: str = "prefix") -> None:
        self.policy = ROUTERS[policy]()
        self.known: list[Replica] = []  # grows; who is gone stays, unhealthy
        self.places: dict[str, int] = {}  # name → index in `known`
        self.assigned: dict[tuple[str, str], tuple[About, Replica]] = {}  # (call, replica)

    async def choose_replicas(
        self, candidate_replicas: list, pending_request: PendingRequest | None = None
    ) -> list[list]:
        """The policy's choice first, all others after it: they get what the first can't take."""
        about = pending_request and pending_request.kwargs.get("about")
        if not about or not candidate_replicas:
            return [candidate_replicas]
        candidates = {one.replica_id.unique_id: one for one in having_model(
            candidate_replicas, pending_request.metadata.multiplexed_model_id)}  # fmt: skip
        self.note(candidates)
        index = self.policy.choose(about, self.known)
        chosen = self.known[index]
        self.assign(pending_request, about, chosen)
        pending_request.routing_context.should_backoff = True  # nobody takes it: wait a moment
        others = [one for name, one in candidates.items() if name != chosen.name]
        return [[candidates[chosen.name]], others]

    def note(self, candidates: dict) -> None:
        """Writes down who is there now."""
        for name in candidates:
            if name not in self.places:
                self.places[name] = len(self.known)
                self.known.append(Replica(name))
        for replica in self.known:
            replica.healthy = replica.name in candidates

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
            self.assign(pending_request, about, self.known[self.places[name]])

    def on_request_completed(self, replica_id, internal_request_id: str) -> None:
        self.end((internal_request_id, replica_id.unique_id))


def having_model(candidates: list, model: str) -> list:
    """Those who have the model in memory; all, when nobody has it yet, or it is asked for none."""
    having = [one for one in candidates if model and model in one.multiplexed_model_ids]
    return having or candidates


class ByLoad:
    """Ray asks it every moment how many replicas there should be; see `scaling`."""

    def __init__(self, requests_each: float = 8.0):
        self.requests_each = requests_each

    def __call__(self, context) -> tuple[int, dict]:
        usage = (context.aggregated_metrics or {}).get("kv_usage", {}).values()
        load = Load(
            context.target_num_replicas,
            round(context.total_num_requests),
            sum(usage) / len(usage) if usage else 0.0,
        )
        least, most = context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas
        return wanted_replicas(load, Limits(least, most, self.requests_each)), {}
