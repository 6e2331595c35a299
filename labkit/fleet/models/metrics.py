"""What Prometheus reads of several models: their own figures together, and those of the cache.

The label `model_name` has the names of the served models and OTHER, whatever clients ask for.
"""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from labkit.serving.metrics import LONG_S, OTHER

OF_PROCESS = "process_"  # of the API process, which all services share


class ModelsMetrics:
    """Told what happens to models; asked with `text`."""

    def __init__(self, budget: int):
        self.registry = CollectorRegistry()
        self.requests = self.counter("labkit:model_requests", "Requests for a model", "found")
        self.refusals = self.counter("labkit:requests_refused", "Answered with an error", "status")
        self.unloads = self.counter("labkit:model_unloads", "Models that left the memory")
        self.failures = self.counter("labkit:model_load_failures", "Models that didn't load")
        self.seconds = Histogram(
            "labkit:model_load_seconds", "Time to load a model", ["model_name"],
            registry=self.registry, buckets=LONG_S,
        )  # fmt: skip
        told = "Memory that a model takes"
        self.bytes = Gauge("labkit:model_bytes", told, ["model_name"], registry=self.registry)
        told = "Memory that all models may take"
        Gauge("labkit:model_memory_bytes", told, registry=self.registry).set(budget)

    def counter(self, name: str, told: str, *labels: str) -> Counter:
        return Counter(name, told, ["model_name", *labels], registry=self.registry)

    def asked(self, name: str, found: str) -> None:
        """`found` is a state as /v1/models has it: only of "ready" nothing had to be waited for."""
        self.requests.labels(name, found).inc()

    def refused(self, status: int, name: str = OTHER) -> None:
        self.refusals.labels(name, str(status)).inc()

    def loaded(self, name: str, seconds: float) -> None:
        self.seconds.labels(name).observe(seconds)

    def failed(self, name: str) -> None:
        self.failures.labels(name).inc()

    def unloaded(self, name: str) -> None:
        self.unloads.labels(name).inc()

    def look(self, services: Iterable, held: dict[str, int]) -> "Together":
        """All figures as of now, for `generate_latest`, which may take long. `held` are the bytes
        of each model."""
        for name, num_bytes in held.items():
            self.bytes.labels(name).set(num_bytes)
        registries = [self.registry]
        for service in services:
            service.metrics.ready.set(service.status == "ready")
            service.metrics.look_at(service.engine_pid)
            registries.append(service.metrics.registry)
        return Together(registries)


class Together:
    """Several registries as one: a family of the same name is told once, with all its samples."""

    def __init__(self, registries: list[CollectorRegistry]):
        self.registries = registries

    def collect(self):
        families = {}
        for registry in self.registries:
            for family in registry.collect():
                known = families.setdefault(family.name, family)
                if known is not family and not family.name.startswith(OF_PROCESS):
                    known.samples += family.samples
        return families.values()
