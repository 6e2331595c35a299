"""What Prometheus reads at /metrics. Names are vLLM's where the meaning is the same.

Counters live here, in the API process, so that they never fall when the engine starts again.
"""

from contextlib import suppress

import psutil
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from labkit.serving.lifecycle import Choice
from labkit.serving.messages import Sight, Step

MOST_GROUPS = 32  # of class and tenant together: each is a hundred lines of every scrape
OTHER = "other"  # class and tenant of those who come later
TTFT_S = (0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
ITL_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)
DELIVERY_S = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)
LONG_S = (0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
BY_CLASS = ["model_name", "class", "tenant"]


class Metrics:
    """Told of what happens to requests and steps; see `Registry`."""

    def __init__(self, model_name: str):
        self.model_name, self.registry = model_name, CollectorRegistry()
        self.running = self.gauge("vllm:num_requests_running", "Requests that run")
        self.waiting = self.gauge("vllm:num_requests_waiting", "Requests that wait, or wait again")
        self.kv_usage = self.gauge("vllm:kv_cache_usage_perc", "Share of the blocks held, 0 to 1")
        self.ready = self.gauge("labkit:engine_ready", "1 while the engine serves")
        self.restarts = self.counter("labkit:engine_restarts", "Engines started after a failure")
        self.busy = self.counter("labkit:device_busy_seconds", "Time in which the device computed")
        self.steps = self.counter("labkit:engine_steps", "Steps of the engine")
        told = "From a token in the engine to the API"
        self.delivery = self.histogram("labkit:token_delivery_seconds", told, DELIVERY_S, ())
        self.engine_cpu = self.counter("labkit:engine_cpu_seconds", "CPU time of the engine")
        self.engine: tuple[int | None, float] = (None, 0.0)  # its pid, and what is counted of it
        ProcessCollector(registry=self.registry)  # of this process: CPU, memory, open files
        self.refused = self.counter("labkit:requests_refused", "Answered with an error", "status")
        self.dropped = self.counter("labkit:streams_dropped", "Streams whose client didn't read")
        self.prompt_tokens = self.counter("vllm:prompt_tokens", "Prompt tokens of started requests")
        self.generation_tokens = self.counter("vllm:generation_tokens", "Tokens generated")
        self.queries = self.counter("vllm:prefix_cache_queries", "Prompt tokens looked up")
        self.hits = self.counter("vllm:prefix_cache_hits", "Prompt tokens found in the cache")
        self.preemptions = self.counter("vllm:num_preemptions", "Preemptions")
        name = "vllm:request_success"
        self.success = self.counter(name, "Requests that ended", "finished_reason", *BY_CLASS[1:])
        self.ttft = self.histogram("vllm:time_to_first_token_seconds", "TTFT", TTFT_S)
        self.itl = self.histogram("vllm:inter_token_latency_seconds", "ITL", ITL_S)
        self.e2e = self.histogram("vllm:e2e_request_latency_seconds", "E2E", LONG_S)
        self.queue = self.histogram("vllm:request_queue_time_seconds", "Before running", LONG_S)
        self.prompt_size = self.histogram("vllm:request_prompt_tokens", "Prompt tokens", TOKENS)
        self.size = self.histogram("vllm:request_generation_tokens", "Output tokens", TOKENS)
        self.groups: dict[tuple[int, str], tuple[str, str, str]] = {}
        self.latencies: dict[tuple[str, str, str], tuple] = {}  # TTFT and ITL of a group

    def gauge(self, name: str, told: str):
        return Gauge(name, told, ["model_name"], registry=self.registry).labels(self.model_name)

    def counter(self, name: str, told: str, *labels: str):
        made = Counter(name, told, ["model_name", *labels], registry=self.registry)
        return made if labels else made.labels(self.model_name)

    def histogram(self, name: str, told: str, buckets, labels=BY_CLASS):
        names = labels or ["model_name"]
        made = Histogram(name, told, names, registry=self.registry, buckets=buckets)
        return made if labels else made.labels(self.model_name)

    def group(self, choice: Choice) -> tuple[str, str, str]:
        """The labels of a request: model, class (its priority), tenant."""
        asked = choice.ticket.asked
        key = (asked.priority, asked.tenant)
        if key not in self.groups:
            if len(self.groups) >= MOST_GROUPS:
                return self.model_name, OTHER, OTHER
            self.groups[key] = (self.model_name, str(asked.priority), asked.tenant)
        return self.groups[key]

    def note_refusal(self, status: int) -> None:
        self.refused.labels(self.model_name, str(status)).inc()

    # ---- told by the registry

    def started(self, choice: Choice) -> None:
        self.queue.labels(*self.group(choice)).observe(choice.started - choice.ticket.arrival)
        self.prompt_tokens.inc(choice.num_prompt_tokens)
        self.queries.inc(choice.num_prompt_tokens)
        self.hits.inc(choice.num_cached_tokens)

    def preempted(self, choice: Choice) -> None:
        self.preemptions.inc()

    def token(self, choice: Choice, now: float) -> None:
        group = self.group(choice)
        if group not in self.latencies:  # to find them by their labels takes longer than to add
            self.latencies[group] = self.ttft.labels(*group), self.itl.labels(*group)
        ttft, itl = self.latencies[group]
        if choice.first_token is None:
            ttft.observe(now - choice.ticket.arrival)
        else:
            itl.observe(now - choice.last_token)

    def ended(self, choice: Choice, now: float) -> None:
        group, reason = self.group(choice), choice.output.finish_reason
        self.success.labels(self.model_name, reason, *group[1:]).inc()
        if choice.num_tokens:
            self.e2e.labels(*group).observe(now - choice.ticket.arrival)
            self.prompt_size.labels(*group).observe(choice.num_prompt_tokens)
            self.size.labels(*group).observe(choice.num_tokens)

    def closed(self, ticket) -> None:
        if ticket.dropped:
            self.dropped.inc()

    def stepped(self, step: Step, num_blocks: int = 0, heard: float | None = None) -> None:
        """`heard` is when it came from the engine."""
        if step.tokens and heard is not None:
            self.delivery.observe(heard - step.tokens[0].time)
        self.steps.inc()
        self.generation_tokens.inc(sum(token.token_id is not None for token in step.tokens))
        self.busy.inc(step.busy_s)
        self.holds(step.running, step.waiting, step.num_used_blocks, num_blocks)

    def seen(self, sight: Sight, num_blocks: int = 0) -> None:
        """What the engine holds: after the last request has left there is no step to tell it."""
        running = sum(held.state == "running" for held in sight.requests)
        waiting = len(sight.requests) - running
        self.holds(running, waiting, sight.num_used_blocks, num_blocks)

    def holds(self, running: int, waiting: int, num_used: int, num_blocks: int) -> None:
        self.running.set(running)
        self.waiting.set(waiting)
        self.kv_usage.set(num_used / num_blocks if num_blocks else 0)

    def text(self) -> bytes:
        """Prometheus' text format: for long, where there are many groups."""
        return generate_latest(self.registry)

    def look_at(self, engine_pid: int | None) -> None:
        """Counts the CPU time that the engine process has spent since it was last looked at."""
        with suppress(psutil.Error):
            times = psutil.Process(engine_pid).cpu_times() if engine_pid else None
            counted = self.engine[1] if self.engine[0] == engine_pid else 0.0
            if times is not None and (spent := times.user + times.system) >= counted:
                self.engine_cpu.inc(spent - counted)
                self.engine = engine_pid, spent
