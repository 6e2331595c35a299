"""`bench serve`: its formulas on scripted times, and the client against a fake OpenAI server."""

import json
import math
import socket
import sys
from statistics import fmean, pstdev

import pytest
from fake_openai import serving

from labkit.measure.bench import cli, load, sending, serve, serve_options, serve_rows, server_side
from labkit.measure.bench.answers import Answer, Usage, token_times
from labkit.measure.bench.drive import BenchError
from labkit.measure.bench.sending import Load
from labkit.measure.bench.serve_rows import Outcome
from labkit.measure.simulate.requests import Arrival
from labkit.measure.slo import SLO
from labkit.measure.workload import WorkloadError, WorkloadRequest


@pytest.fixture
def fake():
    with serving() as found:
        yield found


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv(serve_options.KEY_VARIABLE, raising=False)


def lines_of(*prompts, **more):
    return [
        {"id": f"r{i}", "prompt": prompt, "max_tokens": 6, "ignore_eos": True} | more
        for i, prompt in enumerate(prompts)
    ]


def write(folder, lines):
    (folder / "w.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    return str(folder / "w.jsonl")


def measured(folder, fake, *options, lines=None):
    """What `bench serve` writes of a run against the fake."""
    line = ["--url", fake.url, *options, "--json", str(folder / "out.json")]
    if lines is not None:
        line += ["--workload", write(folder, lines)]
    assert cli.main(["serve", *line]) == 0
    return json.loads((folder / "out.json").read_text("utf-8"))


def answer_of(arrival, seen, tokens, **more):
    found = Answer(arrival, sent=arrival, chunk_times=seen, usage=Usage(5, tokens), done=True)
    found.finish_reason, found.finish_time = "length", seen[-1]
    for name, value in more.items():
        setattr(found, name, value)
    found.close(seen[-1] + 0.5)
    return found


# Times


@pytest.mark.parametrize(
    "seen, num_tokens, times",
    [
        ([1.0, 2.0, 4.0], 3, [1.0, 2.0, 4.0]),
        ([1.0], 1, [1.0]),
        ([2.0], 3, [2.0, 2.0, 2.0]),
        ([0.0, 2.0, 4.0], 5, [0.0, 1.0, 2.0, 3.0, 4.0]),
        ([0.0, 3.0, 4.0], 4, [0.0, 3.0, 3.5, 4.0]),
        ([0.0, 1.0, 2.0, 3.0], 2, [0.0, 3.0]),
        ([0.0, 1.0, 2.0, 3.0, 4.0], 3, [0.0, 2.0, 4.0]),
        ([5.0, 6.0], 1, [5.0]),
    ],
)
def test_each_token_gets_a_time_from_when_text_was_seen(seen, num_tokens, times):
    assert token_times(seen, num_tokens) == times


def test_a_last_token_without_text_is_seen_when_the_answer_ends():
    found = answer_of(0.0, [1.0, 2.0], 3, finish_time=5.0)
    assert found.latency.itl == (1.0, 3.0) and found.latency.e2e == 5.0
    assert answer_of(0.0, [1.0, 2.0], 2, finish_time=5.0).latency.e2e == 2.0


def test_without_usage_the_events_with_text_are_counted():
    found = answer_of(0.0, [1.0, 2.0, 3.0], 9, usage=None)
    assert (found.num_tokens, found.is_counted) == (3, False)


STREAM = (
    b'data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}\n\n'
    b': comment\n\nevent: x\n'
    b'data: {"choices": [{"delta": {"content": "h\xc3\xa9"}}], "usage": null}\r\n\r\n'
    b'data:{"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]}\n\n'
    b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}], "new": [1]}\n\n'
    b'data: {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 2}}\n\n'
    b"data: [DONE]\n\n"
)


def test_a_stream_may_be_cut_anywhere():
    for cut in range(len(STREAM)):
        answer = Answer()
        answer.feed(STREAM[:cut], 1.0)
        answer.feed(STREAM[cut:], 1.0)
        answer.close(2.0)
        assert (answer.failure, answer.num_tokens, answer.chunk_times) == (None, 2, [1.0, 1.0])
        assert answer.usage.prompt_tokens == 4 and answer.finish_reason == "stop"


@pytest.mark.parametrize(
    "stream, failure",
    [
        (STREAM.replace(b"data: [DONE]\n\n", b""), "no [DONE]"),
        (STREAM.replace(b'"stop"', b'"deadline"'), "finish_reason deadline"),
        (STREAM.replace(b'"stop"', b"null"), "finish_reason missing"),
        (STREAM.replace(b'tokens": 2', b'tokens": 0'), "no token"),
        (b'data: {"error": {"message": "m"}}\n\n' + STREAM, "error event"),
        (b"data: {]\n\n" + STREAM, "unreadable event"),
        (b"", "no [DONE]"),
    ],
)
def test_only_a_whole_answer_is_a_success(stream, failure):
    answer = Answer()
    answer.feed(stream, 1.0)
    answer.close(2.0)
    assert (answer.failure, answer.latency) == (failure, None)


# Rows


def request(name="a", **more):
    return WorkloadRequest(name, 3, "x", **more)


def test_the_figures_are_those_of_the_formulas():
    asked = [request("a"), request("b", arrival_s=1.0), request("c", arrival_s=2.0)]
    answers = [
        answer_of(0.0, [1.0, 1.5, 3.0], 3),  # TTFT 1, ITL 0.5 and 1.5, TPOT 1, E2E 3
        answer_of(1.0, [5.0, 5.25], 2, sent=3.0),  # due at 1, sent at 3: TTFT 4, E2E 4.25
        answer_of(2.0, [9.0, 10.0], 2, failure="HTTP 429"),
    ]
    answers[2].end = 4.0
    row = serve_rows.row({}, [Outcome(asked, answers, 0.525)], SLO(ttft=4.0, tpot=0.5))
    assert (row["requests"], row["failed"], row["tokens"], row["prompt_tokens"]) == (3, 1, 5, 10)
    assert row["seconds"] == 5.25 and row["tokens_per_s"] == 5 / 5.25
    assert [row[f"ttft_{what}_s"] for what in ("mean", "p50", "p90", "p99")] == [2.5, 1, 4, 4]
    assert [row[f"itl_{what}_s"] for what in ("mean", "p50", "p90")] == [0.75, 0.5, 1.5]
    assert [row[f"tpot_{what}_s"] for what in ("mean", "p50", "p99")] == [0.625, 0.25, 1.0]
    assert [row[f"e2e_{what}_s"] for what in ("mean", "p50", "p99")] == [3.625, 3.0, 4.25]
    assert (row["slo_met"], row["goodput"]) == (1 / 3, 1 / 5.25)  # "a" has a TPOT of 1
    assert (row["lag_p99_s"], row["client_cpu"], row["tokens_per_chunk"]) == (2.0, 0.1, 1.0)


def test_percentiles_are_by_nearest_rank():
    answers = [answer_of(0.0, [float(i)], 1) for i in range(1, 101)]
    asked = [request(str(i)) for i in range(100)]
    row = serve_rows.figures([*zip(asked, answers, strict=True)], SLO(), 1.0)
    assert [row[f"ttft_p{p}_s"] for p in (50, 90, 99)] == [50.0, 90.0, 99.0]
    assert row["itl_p50_s"] is row["tpot_p50_s"] is row["goodput"] is row["slo_met"] is None


@pytest.mark.parametrize(
    "slo, deadline_ms, is_met",
    [
        (SLO(), None, True),
        (SLO(ttft=1.0, tpot=0.5, e2e=2.0), None, True),
        (SLO(ttft=0.9), None, False),
        (SLO(tpot=0.4), None, False),
        (SLO(e2e=1.9), None, False),
        (SLO(), 2000, True),
        (SLO(e2e=5.0), 1999, False),
    ],
)
def test_a_request_meets_its_limits_and_its_own_deadline(slo, deadline_ms, is_met):
    answer = answer_of(0.0, [1.0, 1.5, 2.0], 3)
    assert serve_rows.meets(request(deadline_ms=deadline_ms), answer, slo) == is_met


def test_runs_are_added_up_and_classes_stand_apart():
    asked = [request("a", tenant="chat"), request("b", tenant="batch", priority=3)]

    def outcome(shift, server):
        answers = [answer_of(0.0, [shift], 1), answer_of(0.0, [shift + 1], 1)]
        return Outcome(asked, answers, 0.0, server)

    told = dict.fromkeys(("ttft_mean_s", "itl_mean_s", "e2e_mean_s", "queue_mean_s"))
    told |= {"preemptions": 1, "cached_tokens": None, "tokens": 4, "engine_cpu_s": None}
    told |= {"api_cpu_s": 0.001}
    runs = [
        outcome(1.0, told | {"requests": 1, "ttft_mean_s": 1.0}),
        outcome(2.0, told | {"requests": 3, "ttft_mean_s": 2.0}),
    ]
    row = serve_rows.row({"server": "s"}, runs, SLO(ttft=2.0))
    assert (row["seconds"], row["requests"], row["slo_met"], row["goodput"]) == (5, 4, 0.75, 0.6)
    assert row["tokens_per_s_of_runs"] == [1.0, 2 / 3]
    assert (row["ttft_mean_server_s"], row["preemptions"], row["requests_server"]) == (1.75, 2, 4)
    assert "e2e_mean_server_s" not in row and row["cached_tokens"] is None
    assert (row["api_cpu_per_token_s"], row["engine_cpu_per_token_s"]) == (0.00025, None)
    classes = serve_rows.class_rows({"server": "s"}, runs, SLO(ttft=2.0))
    assert [(one["class"], one["requests"], one["slo_met"]) for one in classes] == [
        ("chat", 2, 1.0), ("batch", 2, 0.5)
    ]  # fmt: skip
    assert serve_rows.class_rows({}, [Outcome(asked[:1], runs[0].answers[:1], 0)], SLO()) == []


# What is sent, and when


def test_arrivals_have_the_rate_and_the_same_pattern_at_each_rate():
    slow, fast = (sending.gamma_arrivals(201, rate, 1.0, seed=3) for rate in (2.0, 8.0))
    assert slow[0] == 0.0 and slow[-1] == pytest.approx(100.0) and slow == sorted(slow)
    assert [time / 4 for time in slow] == pytest.approx(fast)
    assert slow != sending.gamma_arrivals(201, 2.0, 1.0, seed=4)
    assert sending.gamma_arrivals(3, math.inf, 1.0, seed=0) == [0.0, 0.0, 0.0]
    assert sending.gamma_arrivals(1, 5.0, 1.0, seed=0) == [0.0]


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 16.0])
def test_burstiness_is_the_shape_of_the_gaps(burstiness):
    times = sending.gamma_arrivals(20_001, 1.0, burstiness, seed=1)
    gaps = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(burstiness**-0.5, rel=0.05)


def test_a_load_says_when_requests_come():
    asked = [request("a", arrival_s=4.0), request("b", arrival_s=0.0), request("c", arrival_s=1.0)]

    def times(load, keeps_pattern=False):
        made = sending.scheduled(asked, load, 1.0, 0, keeps_pattern)
        return [(one.id, one.arrival_s) for one in made]

    assert times(Load()) == [("b", 0.0), ("c", 1.0), ("a", 4.0)]
    assert times(Load(rate=math.inf)) == [("a", 0.0), ("b", 0.0), ("c", 0.0)]
    assert [name for name, _ in times(Load(rate=1.0))] == ["a", "b", "c"]
    asked.sort(key=lambda one: one.arrival_s)
    assert times(Load(rate=1.0), True) == [("b", 0.0), ("c", 0.5), ("a", 2.0)]


def test_prompts_have_the_lengths_of_a_trace():
    arrivals = [Arrival(0.0, 100, 20), Arrival(1.5, 7, 1)]
    exact = sending.of_lengths(arrivals, 0, as_text=False)
    assert [(len(one.prompt_token_ids), one.max_tokens) for one in exact] == [(100, 20), (7, 1)]
    assert [one.arrival_s for one in exact] == [0.0, 1.5] and all(one.ignore_eos for one in exact)
    assert all(32 <= token_id < 250 for token_id in exact[0].prompt_token_ids)
    half = sending.of_lengths(arrivals, 0, as_text=False, scale=0.5)
    assert [(len(one.prompt_token_ids), one.max_tokens) for one in half] == [(50, 10), (4, 1)]
    text = sending.of_lengths(arrivals, 0, as_text=True)
    assert [len(one.prompt.split()) for one in text] == [72, 1]  # 28 are the chat template's


def test_a_body_has_the_fields_that_a_server_takes():
    asked = request(ignore_eos=True, priority=2, tenant="t", deadline_ms=50)
    body = sending.body(asked, "m", True, "salt", refused=["priority"])
    assert body == {
        "model": "m", "max_tokens": 3, "temperature": 0, "stream": True, "user": "t",
        "messages": [{"role": "user", "content": "x"}], "ignore_eos": True, "deadline_ms": 50,
        "stream_options": {"include_usage": True}, "cache_salt": "salt",
    }  # fmt: skip
    ids = sending.body(WorkloadRequest("a", 1, prompt_token_ids=[4, 5]), "m", False, "")
    assert ids["prompt"] == [4, 5] and "cache_salt" not in ids and "user" not in ids


def test_token_ids_go_to_completions():
    with_ids = [request(), WorkloadRequest("b", 1, prompt_token_ids=[1])]
    assert not sending.is_chat(with_ids, None)
    assert sending.is_chat(with_ids[:1], None) and not sending.is_chat(with_ids, "completions")
    with pytest.raises(WorkloadError, match="'b' has prompt_token_ids.*--endpoint completions"):
        sending.is_chat(with_ids, "chat")


# The server's side

BEFORE = """\
# HELP vllm:time_to_first_token_seconds x
vllm:time_to_first_token_seconds_bucket{le="1.0",model_name="m"} 3.0
vllm:time_to_first_token_seconds_sum{class="0",tenant="a } b"} 1.0
vllm:time_to_first_token_seconds_sum{class="1",tenant=""} 2.0
vllm:time_to_first_token_seconds_count{class="0",tenant="a } b"} 2.0
vllm:e2e_request_latency_seconds_count 5
vllm:num_preemptions_total{model_name="m"} 4.0
"""
AFTER = """\
vllm:time_to_first_token_seconds_sum{class="0",tenant="a } b"} 6.0
vllm:time_to_first_token_seconds_sum{class="1",tenant=""} 2.0
vllm:time_to_first_token_seconds_count{class="0",tenant="a } b"} 4.0
vllm:time_per_output_token_seconds_sum 3e-1
vllm:time_per_output_token_seconds_count 30
vllm:e2e_request_latency_seconds_sum 8
vllm:e2e_request_latency_seconds_count 7
vllm:num_preemptions_total{model_name="m"} 9.0
"""


def test_the_servers_means_are_of_what_was_added():
    found = server_side.difference(server_side.totals(BEFORE), server_side.totals(AFTER))
    assert found == {
        "requests": 2.0, "ttft_mean_s": 2.5, "itl_mean_s": 0.01, "e2e_mean_s": 4.0,
        "queue_mean_s": None, "preemptions": 5.0, "prompt_tokens": None, "cached_tokens": None,
        "tokens": None, "api_cpu_s": None, "engine_cpu_s": None,
    }  # fmt: skip
    assert server_side.totals("nothing_of_interest 1\n") == {}
    restarted = server_side.difference(server_side.totals(AFTER), server_side.totals(BEFORE))
    assert restarted["ttft_mean_s"] is None


# Against a server


def test_a_run_is_told_and_written(fake, tmp_path, capsys):
    fake.pages = [BEFORE, AFTER]
    found = measured(tmp_path, fake, "--slo-e2e-ms", "60000", lines=lines_of("one", "two", "pairs"))
    (row,) = found["rows"]
    assert (row["requests"], row["failed"], row["tokens"], row["prompt_tokens"]) == (3, 0, 18, 33)
    assert row["tokens_per_chunk"] == 18 / 16  # "pairs": 3 events with text, and the end
    assert (row["slo_met"], row["e2e_mean_server_s"]) == (1.0, 4.0)
    assert row["goodput"] == pytest.approx(3 / row["seconds"])
    assert len(found["request_rows"]) == 3 and "failures" not in found
    assert any("count 2 requests, and 3 answers" in note for note in found["notes"])
    told = capsys.readouterr()
    assert "goodput/s" in told.out and "all at once" not in told.out and "done" in told.err
    for body in fake.asked:
        assert body["model"] == "first" and body["temperature"] == 0 and body["ignore_eos"] is True
    assert len({body["cache_salt"] for body in fake.asked}) == 1


def test_failures_are_counted_by_kind_and_never_good(fake, tmp_path, capsys):
    prompts = ["fine", "refuse", "refuse", "break", "error", "no done", "abort", "garbage"]
    lines = lines_of(*prompts, tenant="t")
    found = measured(tmp_path, fake, "--slo-ttft-ms", "60000", lines=lines)
    kinds = {one["kind"]: one["count"] for one in found["failures"]}
    assert kinds == {
        "HTTP 429": 2, "broken off": 1, "error event": 1, "no [DONE]": 1,
        "finish_reason abort": 1, "unreadable event": 1,
    }  # fmt: skip
    (row,) = found["rows"]
    assert (row["requests"], row["failed"], row["tokens"], row["slo_met"]) == (8, 7, 6, 1 / 8)
    told = capsys.readouterr().out
    assert "HTTP 429" in told and "the queue is full" in told and "the engine died" in told


def test_each_class_has_a_row_of_its_own(fake, tmp_path, capsys):
    lines = lines_of("a", "refuse", tenant="chat") + [
        {"id": "b", "prompt": "b", "max_tokens": 6, "tenant": "batch", "priority": 1}
    ]
    found = measured(tmp_path, fake, "--slo-ttft-ms", "60000", lines=lines)
    rows = [(one["class"], one["requests"], one["failed"], one["slo_met"])
            for one in found["classes"]]  # fmt: skip
    assert rows == [("chat", 2, 1, 0.5), ("batch", 1, 0, 1.0)]
    assert {body.get("user") for body in fake.asked} == {"chat", "batch"}
    assert "class" in capsys.readouterr().out


def test_an_open_loop_waits_for_nobody(fake, tmp_path):
    fake.gather = 40  # no answer begins before all are there
    found = measured(tmp_path, fake, "--rate", "inf", "--requests", "40", lines=lines_of("a", "b"))
    assert (fake.most, found["rows"][0]["failed"]) == (40, 0)
    assert [one["id"] for one in found["request_rows"][:3]] == ["r0", "r1", "r0.2"]


def test_a_closed_loop_has_so_many_under_way(fake, tmp_path):
    fake.gather = 3
    found = measured(tmp_path, fake, "--concurrency", "3", lines=lines_of(*"abcdefghi"))
    assert (fake.most, found["rows"][0]["failed"]) == (3, 0)
    assert found["rows"][0]["lag_p99_s"] < found["rows"][0]["seconds"]


def test_servers_take_turns_in_one_table(fake, tmp_path):
    with serving() as other:
        order = []
        for one, name in ((fake, "a"), (other, "b")):
            one.bodies = Noted(order, name)
        line = ["--url", f"b={other.url}", "--rate", "500,inf", "--runs", "2"]
        found = measured(tmp_path, NamedFake(f"a={fake.url}"), *line, lines=lines_of("x"))
    assert "".join(order) == "ab" + "abababab"
    names = [(one["server"], one["load"], one["requests"]) for one in found["rows"]]
    assert names == [(name, load, 2) for load in ("500/s", "all at once") for name in "ab"]
    salts = {body["cache_salt"] for body in [*fake.bodies, *other.bodies]}
    assert len(salts) == 10  # each run has its own, and so has each trial


class Noted(list):
    def __init__(self, order, name):
        super().__init__()
        self.order, self.name = order, name

    def append(self, body):
        super().append(body)
        self.order.append(self.name)


class NamedFake:
    def __init__(self, url):
        self.url = url


def test_fields_that_a_server_refuses_are_left_out_and_named(fake, tmp_path):
    fake.refused = {"cache_salt", "priority"}
    found = measured(tmp_path, fake, lines=lines_of("a", "b", priority=2))
    assert found["rows"][0]["failed"] == 0
    assert not {"cache_salt", "priority"} & {*fake.asked[-1]} and fake.asked[-1]["ignore_eos"]
    assert any("refuses priority, cache_salt" in note for note in found["notes"])


def test_a_server_without_usage_has_its_events_counted(fake, tmp_path):
    found = measured(tmp_path, fake, lines=lines_of("no usage", "a"))
    assert found["rows"][0]["tokens"] == 12
    assert any("1 answers came without usage" in note for note in found["notes"])


def test_tokens_without_any_text_are_counted(fake, tmp_path):
    found = measured(tmp_path, fake, lines=lines_of("silent"))
    assert (found["rows"][0]["failed"], found["rows"][0]["tokens"]) == (0, 6)


def test_lengths_of_a_trace_go_to_completions(fake, tmp_path):
    rows = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    rows += [f"2023-11-16 18:17:03.{i}00,{10 + i},{4 + i}" for i in range(3)]
    (tmp_path / "t.csv").write_text("\n".join(rows), "utf-8")
    line = ["--trace", str(tmp_path / "t.csv"), "--rate", "1000"]
    found = measured(tmp_path, fake, *line)
    assert [len(body["prompt"]) for body in fake.asked] == [10, 11, 12]
    assert found["rows"][0]["tokens"] == 4 + 5 + 6
    assert "random token ids" in found["requests"]


def test_prompts_of_one_length(fake, tmp_path):
    line = ["--prompt-tokens", "9", "--output-tokens", "5", "--requests", "4", "--keep-prefixes"]
    found = measured(tmp_path, fake, *line)
    assert {len(body["prompt"]) for body in fake.asked} == {9} and found["rows"][0]["tokens"] == 20
    assert not any("cache_salt" in body for body in fake.bodies)


def test_the_built_in_requests_need_no_file(fake, tmp_path):
    found = measured(tmp_path, fake, "--requests", "3", "--model", "second")
    assert found["rows"][0]["requests"] == 3 and fake.asked[0]["model"] == "second"


def test_a_key_is_sent_and_never_written(fake, tmp_path, monkeypatch, capsys):
    fake.key = "very-secret"
    monkeypatch.setenv(serve_options.KEY_VARIABLE, fake.key)
    found = measured(tmp_path, fake, lines=lines_of("a"))
    assert fake.headers[-1]["Authorization"] == "Bearer very-secret"
    assert "very-secret" not in json.dumps(found) + "".join(capsys.readouterr())


def test_without_the_key_one_line_says_so(fake, capsys):
    fake.key = "k"
    assert cli.main(["serve", "--url", fake.url]) == 1
    assert "--api-key" in capsys.readouterr().err.splitlines()[-1]


def test_a_server_that_is_not_there_is_named_with_the_remedy(tmp_path, capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        line = ["--url", url, "--json", str(tmp_path / "o.json")]
        assert cli.main(["serve", *line]) == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("FAIL bench serve: ")
    assert all(part in told for part in (url, "refused", "python3 -m labkit serve"))
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_is_refused_is_told(fake, capsys):
    fake.refused = {"model"}
    assert cli.main(["serve", "--url", fake.url, "--model", "gpt"]) == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert "'gpt'" in told and "HTTP 400" in told and "model is not known" in told


def test_ctrl_c_writes_nothing(fake, tmp_path, monkeypatch):
    async def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(load, "send", interrupted)
    files = ["--json", str(tmp_path / "o.json"), "--plot", str(tmp_path / "p.png")]
    assert cli.main(["serve", "--url", fake.url, *files]) == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("loads", [["--rate", "inf"], ["--concurrency", "1,2"]])
def test_a_picture_is_drawn(loads, fake, tmp_path):
    line = [*loads, "--slo-ttft-ms", "9", "--plot", str(tmp_path / "p.png")]
    measured(tmp_path, fake, *line, lines=lines_of("a", "b", "refuse"))
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("line, labels", [
    (["--slo-itl-ms", "9"], {"limit"}),
    (["--slo-tpot-ms", "9"], {"limit of the mean"}),
    (["--slo-itl-ms", "9", "--slo-tpot-ms", "5"], {"limit", "limit of the mean"}),
])  # fmt: skip
def test_a_picture_says_whether_a_limit_is_of_every_gap_or_of_their_mean(
    line, labels, fake, tmp_path, monkeypatch
):
    from matplotlib.axes import Axes

    drawn = []

    def axvline(self, *args, **options):
        drawn.append(original(self, *args, **options))
        return drawn[-1]

    original = Axes.axvline
    monkeypatch.setattr(Axes, "axvline", axvline)
    line = ["--rate", "inf", *line, "--plot", str(tmp_path / "p.png")]
    measured(tmp_path, fake, *line, lines=lines_of("a", "b"))
    assert {mark.get_label() for mark in drawn} == labels


def test_a_picture_is_drawn_when_all_failed(fake, tmp_path):
    line = ["--rate", "inf,1000", "--plot", str(tmp_path / "p.svg")]
    measured(tmp_path, fake, *line, lines=lines_of("refuse", "refuse"))
    assert b"<svg" in (tmp_path / "p.svg").read_bytes()


# Options


@pytest.mark.parametrize(
    "line, told",
    [
        ("--rate 0", "'0' is no number above 0"),
        ("--rate 1,x", "'x' is no number"),
        ("--rate nan", "'nan' is no number"),
        ("--concurrency 0", "'0' is no whole number from 1"),
        ("--rate 1 --concurrency 1", "not allowed with"),
        ("--url ftp://x", "'ftp://x' is no URL such as"),
        ("--url 127.0.0.1:8000", "is no URL such as"),
        ("--url http://x:99999", "is no URL such as"),
        ("--url http://x/api/", "has the path '/api/'"),
        ("--url http://x --url http://x/v1", "two servers are called 'x'"),
        ("--prompt-tokens 5", "give both"),
        ("--output-tokens 5", "give both"),
        ("--scale-lengths 2", "--scale-lengths is of a --trace"),
        ("--burstiness 2", "--burstiness is of a --rate"),
        ("--burstiness 2 --rate inf", "--burstiness is of a --rate"),
        ("--workload /no/such", "there is no file '/no/such'"),
        ("--plot x.gif", "no .png"),
        ("--endpoint embeddings", "invalid choice"),
        ("--timeout 0", "no number above 0"),
    ],
)
def test_bad_options_end_with_status_2_and_one_line(line, told, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["serve", *line.split()])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and told in said and said.count("\n") == 1


def test_a_server_may_have_a_name():
    assert serve_options.server("a=http://x:1/v1/") == ("a", "http://x:1")
    assert serve_options.server("https://x") == ("x", "https://x")


def test_more_requests_than_a_workload_has_need_a_rate(tmp_path):
    file = write(tmp_path, lines_of("a", "b"))
    ask = ["serve", "--workload", file, "--requests", "5"]
    with pytest.raises(BenchError, match="--requests 5: w.jsonl has 2"):
        serve.plan_of(cli.parse(ask))
    plan = serve.plan_of(cli.parse([*ask, "--rate", "2"]))
    assert [one.id for one in plan.asked] == ["r0", "r1", "r0.2", "r1.2", "r0.3"]


def test_the_limit_of_open_files_is_raised_or_told(monkeypatch):
    resource = pytest.importorskip("resource")
    limits = [(256, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda which, pair: limits.append(pair))
    assert load.raise_file_limit(100) is None and limits == [(256, 4096)]
    assert load.raise_file_limit(1000) is None and limits[-1] == (1064, 4096)
    assert "this process may open 4096 files" in load.raise_file_limit(5000)
    monkeypatch.setitem(sys.modules, "resource", None)
    assert load.raise_file_limit(5000) is None
