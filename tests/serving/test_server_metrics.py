"""Metrics: bounded labels, counters of what happened; the dashboard asks only for what there is."""

import json
import re
from pathlib import Path

from labkit import serving
from labkit.model.sampling_params import SamplingParams
from labkit.serving.lifecycle import Asked, Registry, Ticket
from labkit.serving.messages import Started, Step, Token
from labkit.serving.metrics import MOST_GROUPS, Metrics
from labkit.serving.text import TextSide

DASHBOARD = Path(serving.__file__).parent / "grafana.json"


class Watch(Metrics):
    def stepped(self, step):
        super().stepped(step, num_blocks=8)


def step(*tokens, started=(), preempted=()):
    events = [Token(name, token_id, reason, 0.0) for name, token_id, reason in tokens]
    first = [Started(name, 2.0, 4) for name in started]
    return Step(0.0, 0.1, 0.1, events, first, list(preempted), 1, 0, 2)


def samples(metrics):
    lines = [line for line in metrics.text().decode().splitlines() if line[0] != "#"]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def served(registry, tenant="", priority=0, name="r"):
    asked = Asked("chat", [[1, 2, 3]], SamplingParams(max_tokens=9), True, tenant=tenant,
                  priority=priority)  # fmt: skip
    ticket = Ticket(name, asked, TextSide.load("tiny"), lambda *names: None, arrival=1.0)
    registry.open(ticket)
    return ticket


def test_a_request_is_counted_once_whatever_happens_to_it():
    now = iter([3.0, 4.0, 5.5, 6.0, 7.0, 8.0])
    metrics = Watch("m")
    registry = Registry(metrics, clock=lambda: next(now))
    served(registry, "acme", -3)
    registry.on_step(step(("r", 65, None), started=["r"]))
    registry.on_step(step(preempted=["r"]))
    registry.on_step(step(("r", 66, "length")))
    found = samples(metrics)
    labels = '{class="-3",model_name="m",tenant="acme"}'
    assert found[f"vllm:time_to_first_token_seconds_count{labels}"] == 1
    assert found[f"vllm:time_to_first_token_seconds_sum{labels}"] == 2.0
    assert found[f"vllm:inter_token_latency_seconds_sum{labels}"] == 2.5
    assert found[f"vllm:request_queue_time_seconds_sum{labels}"] == 1.0
    assert found[f"vllm:e2e_request_latency_seconds_count{labels}"] == 1
    assert found['vllm:num_preemptions_total{model_name="m"}'] == 1
    assert found['vllm:prompt_tokens_total{model_name="m"}'] == 3
    assert found['vllm:prefix_cache_hits_total{model_name="m"}'] == 4
    assert found['vllm:generation_tokens_total{model_name="m"}'] == 2
    assert found['vllm:kv_cache_usage_perc{model_name="m"}'] == 0.25


def test_a_request_without_a_token_has_no_latency():
    metrics = Watch("m")
    registry = Registry(metrics)
    registry.end(served(registry), "abort", "its client left")
    found = samples(metrics)
    assert not any("time_to_first_token_seconds_count" in name for name in found)
    name = 'vllm:request_success_total{class="0",finished_reason="abort",model_name="m",tenant=""}'
    assert found[name] == 1


def test_what_the_engine_never_accepted_is_not_counted_when_it_dies():
    metrics = Watch("m")
    registry = Registry(metrics)
    served(registry, name="coming")
    served(registry, name="there").is_accepted = True
    registry.end_all("the engine failed", "engine_failed")
    assert [*registry.tickets] == ["coming"] and registry.find("there").code == "engine_failed"
    registry.withdraw(registry.tickets["coming"])
    ends = [value for name, value in samples(metrics).items() if "request_success_total" in name]
    assert ends == [1] and not registry.tickets and not registry.choices


def test_a_thousand_tenants_make_few_labels():
    metrics = Watch("m")
    registry = Registry(metrics)
    for i in range(1000):
        registry.end(served(registry, f"tenant-{i}", i, f"r{i}"), "abort", "left")
    text = metrics.text().decode()
    assert len({*re.findall(r'tenant="([^"]*)"', text)}) == MOST_GROUPS + 1
    assert len({*re.findall(r'class="([^"]*)"', text)}) == MOST_GROUPS + 1
    assert len(text.splitlines()) < 3000


def test_neither_do_all_pairs_of_many_tenants_and_classes():
    """A scrape of 140,000 lines takes a second, in which no stream gets a token."""
    metrics, now = Watch("m"), iter(range(10**6))
    registry = Registry(metrics, clock=lambda: float(next(now)))
    for i in range(33):
        for j in range(33):
            served(registry, f"tenant-{i}", j, f"r{i}-{j}")
            registry.on_step(step((f"r{i}-{j}", 65, "length"), started=[f"r{i}-{j}"]))
    found = samples(metrics)
    groups = {name for name in found if name.startswith("vllm:time_to_first_token_seconds_count")}
    assert len(groups) == MOST_GROUPS + 1
    assert sum(found[name] for name in groups) == 33 * 33
    assert len(found) < 10_000


def test_the_dashboard_asks_for_metrics_that_exist():
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"(?:vllm|labkit):\w+", target["expr"])
    }
    metrics = Watch("m")
    registry = Registry(metrics)
    served(registry)
    registry.on_step(step(("r", 65, None), started=["r"]))
    registry.on_step(step(("r", 66, "length")))
    metrics.refused.labels("m", "429").inc()
    there = {name.split("{")[0] for name in samples(metrics)}
    assert asked and asked <= there
