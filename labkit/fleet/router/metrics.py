"""What Prometheus reads at the router's /metrics. The replicas' own figures stay at theirs."""

import time

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from labkit.fleet.router.backends import Backend
from labkit.serving.metrics import TTFT_S

STATES = {"closed": 0, "half-open": 1, "open": 2}


class RouterMetrics:
    """Told of what becomes of requests; looks at the backends when it is read."""

    def __init__(self):
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.answers = self._make(Counter, "answers", "Answers begun", "replica", "status")
        self.refusals = self._make(
            Counter, "refusals", "429 and 503 of a replica", "replica", "status"
        )
        self.losses = self._make(Counter, "losses", "Requests that a replica lost", "replica")
        self.retries = self._make(Counter, "retries", "Requests sent again, to", "replica")
        self.errors = self._make(Counter, "errors", "Completions answered with an error", "status")
        told = "From dispatch to the first byte of the answer"
        self.first = Histogram(
            "labkit:router_first_byte_seconds", told, ["replica"], registry=self.registry,
            buckets=TTFT_S,
        )  # fmt: skip
        self.up = self._make(Gauge, "replica_up", "1 while health checks pass", "replica")
        told = "0 closed, 1 half-open, 2 open"
        self.breaker = self._make(Gauge, "breaker_state", told, "replica")
        self.requests = self._make(Gauge, "requests", "Dispatched and not ended", "replica")
        self.tokens = self._make(Gauge, "tokens", "Of these requests, in and out", "replica")
        self.found: dict[tuple[str, int], tuple] = {}  # labels are slow to look up

    def _make(self, kind, name: str, told: str, *labels: str):
        return kind(f"labkit:router_{name}", told, labels, registry=self.registry)

    def first_byte(self, replica: str, status: int, seconds: float) -> None:
        if (replica, status) not in self.found:
            self.found[replica, status] = (
                self.answers.labels(replica, str(status)), self.first.labels(replica)
            )  # fmt: skip
        answers, first = self.found[replica, status]
        answers.inc()
        first.observe(seconds)

    def refused(self, replica: str, status: int) -> None:
        self.refusals.labels(replica, str(status)).inc()

    def lost(self, replica: str) -> None:
        self.losses.labels(replica).inc()

    def retried(self, replica: str) -> None:
        self.retries.labels(replica).inc()

    def failed(self, status: int) -> None:
        self.errors.labels(str(status)).inc()

    def text(self, backends: list[Backend]) -> bytes:
        now = time.monotonic()
        for one in backends:
            self.up.labels(one.name).set(one.is_up)
            self.breaker.labels(one.name).set(STATES[one.breaker.state(now)])
            self.requests.labels(one.name).set(one.replica.num_requests)
            self.tokens.labels(one.name).set(one.replica.num_tokens)
        return generate_latest(self.registry)
