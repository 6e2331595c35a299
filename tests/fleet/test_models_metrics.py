"""Metrics of several models: a family for all of them, counters that never fall, bounded labels."""

import types

from prometheus_client import generate_latest

from labkit.fleet.models.metrics import ModelsMetrics
from labkit.serving.metrics import Metrics


def service(name: str):
    return types.SimpleNamespace(metrics=Metrics(name), status="ready", engine_pid=None)


def lines(metrics: ModelsMetrics, services, held=None) -> list[str]:
    return generate_latest(metrics.look(services, held or {})).decode().splitlines()


def test_each_family_is_told_once_with_the_samples_of_all_models():
    told = lines(ModelsMetrics(1000), [service("a"), service("b")])
    families = [line for line in told if line.startswith("# TYPE ")]
    assert len(families) == len({*families})
    samples = [line.rpartition(" ")[0] for line in told if not line.startswith("#")]
    assert len(samples) == len({*samples})
    for name in "ab":
        assert f'labkit:engine_ready{{model_name="{name}"}} 1.0' in told
    assert sum(line.startswith("process_open_fds ") for line in told) <= 1


def test_refusals_of_a_model_and_of_none_stand_in_one_family():
    metrics, one = ModelsMetrics(1000), service("a")
    one.metrics.note_refusal(400)
    metrics.refused(404)
    told = lines(metrics, [one])
    assert 'labkit:requests_refused_total{model_name="a",status="400"} 1.0' in told
    assert 'labkit:requests_refused_total{model_name="other",status="404"} 1.0' in told


def test_what_happens_to_models_is_counted():
    metrics = ModelsMetrics(1000)
    metrics.asked("a", "idle")
    metrics.asked("a", "ready")
    metrics.loaded("a", 2.0)
    metrics.unloaded("a")
    metrics.failed("a")
    told = lines(metrics, [], {"a": 7, "b": 0})
    for line in (
        'labkit:model_requests_total{found="idle",model_name="a"} 1.0',
        'labkit:model_requests_total{found="ready",model_name="a"} 1.0',
        'labkit:model_load_seconds_sum{model_name="a"} 2.0',
        'labkit:model_unloads_total{model_name="a"} 1.0',
        'labkit:model_load_failures_total{model_name="a"} 1.0',
        'labkit:model_bytes{model_name="a"} 7.0',
        'labkit:model_bytes{model_name="b"} 0.0',
        "labkit:model_memory_bytes 1000.0",
    ):
        assert line in told
