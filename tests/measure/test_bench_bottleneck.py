"""`bench bottleneck`: figures from known times, which of them tell a cause, one real run."""

import asyncio
import json
import re

import pytest

from labkit.engine.request import Request
from labkit.measure.bench import (
    bottleneck,
    bottleneck_load,
    bottleneck_plot,
    bottleneck_rows,
    cli,
    pairwise,
)
from labkit.measure.bench.answers import Answer

TOTALS = {
    "labkit:device_busy_seconds_total": 1.0, "labkit:engine_steps_total": 4.0,
    "vllm:generation_tokens_total": 8.0, "vllm:prompt_tokens_total": 100.0,
    "vllm:prefix_cache_hits_total": 48.0, "vllm:num_preemptions_total": 3.0,
    "api_cpu": 0.5, "engine_cpu": 0.25,
}  # fmt: skip


def seen(*answers: Answer, **other) -> bottleneck_rows.Seen:
    known = {"queues": [0.1, 0.2], "kv": [0.25, 0.75], "before": {}, "after": TOTALS}
    return bottleneck_rows.Seen(2.0, 2.5, [*answers], **known | other)


def answer(arrival: float, *times: float) -> Answer:
    return Answer(arrival=arrival, chunk_times=[*times])


def test_a_row_from_known_times():
    answers = answer(0.0, 0.5, 0.75, 2.25), answer(0.5, 1.5)
    row = bottleneck_rows.row({}, seen(*answers), flops_per_token=10.0, peak_flops=1000.0)
    assert row["tokens_per_s"] == 1.5  # the token at 2.25 came after the end
    assert (row["ttft_p50_s"], row["ttft_p99_s"], row["itl_p50_s"]) == (0.5, 1.0, 0.25)
    assert (row["busy"], row["step_s"], row["tokens_per_step"]) == (0.4, 0.25, 2.0)
    assert row["mfu"] == pytest.approx((8 + 100 - 48) * 10 / 1000 / 2.5)
    assert (row["kv_mean"], row["kv_peak"], row["preemptions"]) == (0.5, 0.75, 3.0)
    assert (row["api_cpu"], row["engine_cpu"]) == (0.2, 0.1)
    assert (row["queue_p50_s"], row["queue_p99_s"]) == (0.1, 0.2)


def test_a_request_without_a_token_counts_with_the_time_it_has_waited():
    row = bottleneck_rows.row({}, seen(answer(0.25), answer(1.0, 1.25)), 1.0, 1.0)
    assert (row["ttft_p99_s"], row["unanswered"], row["requests"]) == (1.75, 1, 2)


BASE = dict(
    cause="baseline", switch="", busy=0.9, tokens_per_s=1000.0, tokens_per_step=16.0, step_s=0.008,
    queue_p50_s=0.001, ttft_p50_s=0.02, itl_p50_s=0.008, itl_p99_s=0.01, kv_peak=0.1,
    preemptions=0, api_cpu=0.3, engine_cpu=0.1,
)  # fmt: skip
SMALL = BASE | {
    "cause": "small-batch", "switch": "max_num_seqs 2", "tokens_per_s": 125.0,
    "tokens_per_step": 2.0, "queue_p50_s": 0.5, "kv_peak": 0.02,
}  # fmt: skip
SLOW = BASE | {
    "cause": "scheduler", "switch": "a slow policy", "busy": 0.3, "tokens_per_s": 300.0,
    "itl_p50_s": 0.024, "engine_cpu": 0.7,
}  # fmt: skip


def test_the_figures_that_changed_most_come_first():
    found = [(one.key, round(factor, 3)) for one, factor in bottleneck_rows.changes(SMALL, BASE)]
    assert found[0] == ("queue_p50_s", 100.0)  # the baseline's 1 ms counts as the floor, 5 ms
    assert {key for key, _ in found} == {
        "queue_p50_s", "tokens_per_s", "tokens_per_step", "kv_peak"
    }  # fmt: skip
    assert dict(found)["tokens_per_step"] == 0.125


def test_the_clue_names_figures_in_words():
    told = bottleneck_rows.clue(SMALL, [BASE, SMALL, SLOW])
    assert told.startswith("small-batch: max_num_seqs 2. Most changed: queue p50 1.0 ms -> 500.")
    assert "(÷ 8.0)" in told and "unchanged: device busy" in told
    assert "More than any other cause here: queue p50" in told
    assert bottleneck_rows.own(SLOW, [BASE, SMALL, SLOW]) == [
        "the engine's core", "device busy", "ITL p50"
    ]  # fmt: skip


def test_idle_and_busy_for_nothing_are_told_apart():
    idle, hidden = bottleneck_rows.conclusions([BASE, SMALL, SLOW], BASE)
    assert "scheduler (30%)" in idle and "small-batch" not in idle
    assert "small-batch (90% busy, 12% of the tokens/s)" in hidden and "scheduler" not in hidden
    assert bottleneck_rows.conclusions([BASE], BASE) == []


def options_of(*told: str):
    return cli.parse(["bottleneck", *told])


def test_each_cause_is_one_switch_on_the_baseline():
    found = {case.cause: case for case in bottleneck.cases(options_of("--clients", "8"))}
    assert [*found] == ["baseline", *bottleneck.CAUSES]
    assert found["kv"].options == ["--num-blocks", "14"]  # 8 clients of 7 blocks, a quarter
    assert found["transfer"].options == ["--num-blocks", "14", "--preemption", "swap"]
    assert (found["tokenizer"].long, found["bandwidth"].long) == ("text", "ids")
    assert found["baseline"] == bottleneck.Case("baseline", found["baseline"].switch)


class Runs:
    """A tokenizer that makes a token of up to 64 equal letters."""

    def encode(self, text: str) -> list[int]:
        return re.findall(r"(.)\1{0,63}", text, re.DOTALL)


def test_a_wide_text_has_many_characters_and_few_tokens():
    wide = bottleneck.wide_text(Runs(), 1000)
    assert 7500 < len(wide) <= 8000 and wide.isspace()
    assert 100 < len(Runs().encode(wide)) < 200


class Letters:
    """A tokenizer that makes a token of each letter."""

    def encode(self, text: str) -> list[int]:
        return [*map(ord, text)]


def test_prompts_are_what_the_case_wants():
    options = options_of("--clients", "2", "--long-tokens", "100")
    short = bottleneck.Prompts("", options, Letters())
    assert len(short.next(0).prompt_token_ids) == bottleneck.PROMPT_TOKENS
    ids = bottleneck.Prompts("ids", options, Letters())
    first, again, other = (ids.next(client).prompt_token_ids for client in (0, 0, 1))
    assert first[:100] == again[:100] != other[:100] and first != again
    assert len(ids.first()) == 2 and len(short.first()) == 1
    text = bottleneck.Prompts("text", options, Letters())
    assert len(text.beginnings[0]) == 100  # a token each: no more than was asked for
    assert text.next(0).prompt.startswith(text.beginnings[0])
    assert text.next(0).prompt != text.next(0).prompt


def test_the_slow_policy_puts_those_first_that_share_most():
    prompts = {"a": [1, 2, 3], "b": [7, 8, 9], "c": [2, 3, 4]}
    running = [Request(name, prompt) for name, prompt in prompts.items()]
    assert [one.request_id for one in pairwise.Pairwise().in_order(running)] == ["a", "c", "b"]


def test_a_picture_is_drawn_with_figures_that_are_missing(tmp_path):
    more = dict.fromkeys(("mfu", "queue_p99_s", "ttft_p99_s", "kv_mean"), 0.5)
    rows = [BASE | more, SMALL | more | {"itl_p50_s": None, "kv_mean": None, "queue_p50_s": 0.0}]
    bottleneck_plot.save(tmp_path / "p.svg", rows, "about")
    assert "<svg" in (tmp_path / "p.svg").read_text("utf-8")
    [gap] = [one for one in bottleneck_plot.PANELS if one.key == "itl_p50_s"]
    assert bottleneck_plot.text_of(gap, rows[0]) == "8.0 / 10.0"
    assert bottleneck_plot.text_of(gap, rows[1]) == "- / 10.0"


@pytest.mark.parametrize("value, text", [(1234.5, "1,234"), (12.34, "12.3"), (0.068, "0.068")])
def test_figures_in_the_picture_have_three_digits(value, text):
    assert bottleneck_plot.short(value) == text


def test_a_cause_that_there_is_not_is_refused(capsys):
    with pytest.raises(SystemExit):
        options_of("--causes", "weather")
    assert "'weather' is not known" in capsys.readouterr().err


def test_a_short_run(tmp_path):
    told = ["--model", "tiny", "--device", "H100:8b", "--clients", "6", "--long-tokens", "100"]
    told += ["--seconds", "0.8", "--causes", "small-batch,transfer,scheduler"]
    files = ["--json", str(tmp_path / "out.json"), "--plot", str(tmp_path / "out.png")]
    assert cli.main(["bottleneck", *told, *files]) == 0
    found = json.loads((tmp_path / "out.json").read_text("utf-8"))
    rows = {row["cause"]: row for row in found["rows"]}
    assert [*rows] == ["baseline", "small-batch", "transfer", "scheduler"]
    assert all(row["label"] == "modelled" and row["requests"] >= 6 for row in rows.values())
    assert rows["small-batch"]["tokens_per_step"] <= 2
    assert rows["small-batch"]["queue_p99_s"] > 0
    assert rows["scheduler"]["clue"].startswith("scheduler: a policy")
    assert 0 < rows["transfer"]["kv_peak"] <= 1
    assert (tmp_path / "out.png").stat().st_size > 10_000


def test_the_time_in_line_ends_with_the_run(monkeypatch):
    """What is asked for a moment after the end must not count that moment."""
    waits, runs, later = (10.0, 10.0), (10.0, 0.5), (1.0, 1.0)
    data = [{"age_s": age, "queue_s": queue} for age, queue in (waits, runs, later)]

    async def page(port, path):
        return json.dumps({"data": data}).encode()

    monkeypatch.setattr(bottleneck_load.light_client, "get", page)
    found = asyncio.run(bottleneck_load.queues_of_open(0, lambda: 2.0))
    assert found == [8.0, 0.5]
