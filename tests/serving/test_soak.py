"""`bench soak`: the whole of it in small, and that each fault it looks for would be seen."""

import asyncio
import json
import re
from dataclasses import replace

import pytest

from labkit.measure.bench import cli, soak_asks, soak_play, soak_plot, soak_promises
from labkit.measure.bench.soak_answers import Fault, Result, check_whole, read_stream, refusal
from labkit.measure.bench.soak_asks import Ask
from labkit.measure.bench.soak_promises import Ending, Sample
from labkit.model.sampling_params import SamplingParams
from labkit.serving.bodies import ChatBody, CompletionBody
from labkit.serving.lifecycle import Asked, Registry, Ticket
from labkit.serving.messages import Started, Step, Token
from labkit.serving.metrics import Metrics
from labkit.serving.text import TextSide

# ---- the whole of it


def test_a_server_under_250_requests_and_a_kill_keeps_its_promises():
    results, ending = asyncio.run(soak_play.soak(250, 24, 1, seed=1, timeout_s=120))
    broken = [one for one in soak_promises.promises(results, 250, ending) if one.kept is False]
    assert not broken, [(one.told, one.ask) for one in results if not one.is_fine]
    outcomes = {one.outcome for one in results}
    assert {one.ask.kind for one in results} == {*soak_asks.KINDS, soak_asks.KILLS}
    assert {"answer", "refused", "cancelled", "engine lost", "left", "killed"} <= outcomes
    assert ending.samples[-1].ended == 250


# ---- what is asked


def test_the_same_seed_asks_the_same():
    assert soak_asks.mix(300, 5, 2) == soak_asks.mix(300, 5, 2) != soak_asks.mix(300, 6, 2)


def test_engines_are_killed_in_the_middle():
    kinds = [ask.kind for ask in soak_asks.mix(1000, 0, 3)]
    places = [place for place, kind in enumerate(kinds) if kind == soak_asks.KILLS]
    assert len(places) == 3 and places[0] >= 100 and places[-1] < 900
    assert len(soak_asks.mix(10, 0, 5)) == 10


def test_good_requests_are_good_and_have_all_that_is_promised():
    asks = [ask for ask in soak_asks.mix(3000, 0) if ask.num_choices]
    for ask in asks:
        body = ChatBody if ask.path.endswith("chat/completions") else CompletionBody
        body.model_validate_json(ask.body)
    said = [json.loads(ask.body) for ask in asks]
    assert {body["n"] for body in said} == {1, 2, 3}
    assert max(body["max_tokens"] for body in said) == soak_asks.MOST_TOKENS
    assert min(body["max_tokens"] for body in said) == 1
    assert min(body.get("priority", 0) for body in said) < 0
    assert any(body["request_id"] == "same" for body in said)
    for field in ("stop", "deadline_ms", "user", "seed", "cache_salt", "logit_bias", "stream"):
        assert any(field in body for body in said), field


def test_a_letter_is_the_token_that_the_tokenizer_has_for_it():
    from labkit.model.tiny import tiny_backend

    assert tiny_backend().encode("aZ").ids == [soak_asks.token_of(letter) for letter in "aZ"]


# ---- what comes back

MARKED = Ask(
    0, "whole", "/v1/completions", num_choices=1, max_tokens=3, letter="a", with_usage=True
)


def whole(*texts, reason="length", tokens=3):
    choices = [
        {"index": i, "text": text, "finish_reason": reason} for i, text in enumerate(texts)
    ]
    return {"choices": choices, "usage": {"completion_tokens": tokens}}


def test_a_right_answer_is_one():
    result = Result(MARKED, "")
    assert check_whole(MARKED, whole("aaa"), result) == "answer" and result.num_tokens == 3
    stopped = replace(MARKED, max_tokens=9, stop=True)
    assert check_whole(stopped, whole("", reason="stop", tokens=5), Result(stopped, "")) == "answer"


@pytest.mark.parametrize(
    "body, told",
    [
        (whole("aba"), "says 'aba' instead of 'a'"),
        (whole("aa"), "2 letters instead of 3"),
        (whole("aaa", tokens=4), "3 letters, and usage 4"),
        (whole("aa", reason="stop"), "stopped with 'aa'"),
        (whole("aaa", reason="abort"), "finish_reason 'abort'"),
        (whole("aaa", "aaa", tokens=6), r"choices \[0, 1\] instead of \[0\]"),
        (whole(), r"choices \[\] instead of \[0\]"),
        (whole("aaa") | {"usage": None}, "usage None"),
    ],
)
def test_a_wrong_answer_is_a_fault(body, told):
    with pytest.raises(Fault, match=told):
        check_whole(MARKED, body, Result(MARKED, ""))


def test_text_after_a_stop_string_is_a_fault():
    asked = replace(MARKED, max_tokens=9, stop=True)
    with pytest.raises(Fault, match="went on after the stop string"):
        check_whole(asked, whole("a" * 9, tokens=9), Result(asked, ""))


class Lines:
    """A response whose lines are known."""

    def __init__(self, *events):
        self.events, self.closed, self.content = events, False, self.lines()

    async def lines(self):
        for one in self.events:
            data = one if isinstance(one, str) else json.dumps(one)
            for line in (f"data: {data}\n", "\n"):
                yield line.encode()

    def close(self):
        self.closed = True


def piece(text="", reason=None):
    return {"choices": [{"index": 0, "text": text, "finish_reason": reason}]}


def error(code):
    return {"error": {"message": "no", "code": code}}


def read(ask, *events):
    response = Lines(*events)
    return asyncio.run(read_stream(ask, response, Result(ask, ""))), response


STREAMED = replace(MARKED, kind="stream", stream=True, with_usage=False)


def test_streams_end_with_done_or_an_error():
    assert read(STREAMED, piece("aa"), piece("a", "length"), "[DONE]")[0] == "answer"
    assert read(STREAMED, piece("a"), error("engine_failed"))[0] == "engine lost"
    assert read(STREAMED, error("deadline"))[0] == "deadline"
    leaving = replace(STREAMED, kind="leaves midway", after=2)
    outcome, response = read(leaving, piece("a"), piece("a"), piece("a"))
    assert outcome == "left" and response.closed


@pytest.mark.parametrize(
    "events, told",
    [
        ([piece("aaa", "length")], "without .DONE. and without an error"),
        ([piece("aaa", "length"), "[DONE]", piece("a")], "after the end"),
        ([piece("aaa"), "[DONE]"], r"choices \[\]"),
        ([error("engine_error")], "engine_error"),
        ([error("cancelled"), "[DONE]"], "after the end"),
        ([piece("aaa", "length"), {"choices": [], "usage": {"completion_tokens": 3}}, "[DONE]"],
         "usage"),
    ],
)  # fmt: skip
def test_streams_that_end_otherwise_are_faults(events, told):
    with pytest.raises(Fault, match=told):
        read(STREAMED, *events)


def test_refusals_are_told_apart():
    bad = Ask(0, "bad input", "/v1/completions", b"{}", statuses=(400,))

    def said(ask, status, code=None, **headers):
        return refusal(ask, status, headers, json.dumps(error(code)).encode())

    again = {"retry-after": "2"}
    assert said(bad, 400) == ("refused", 0)
    assert said(MARKED, 503, "engine_down", **again) == ("engine down", 2)
    assert said(bad, 429, "too_many_requests", **again) == ("busy", 2)
    for ask, status, code, told in (
        (bad, 500, None, "500"), (MARKED, 400, None, "400"), (bad, 409, "cancelled", "409"),
        (MARKED, 503, "engine_down", "without Retry-After"), (MARKED, 500, "engine_error", "500"),
    ):  # fmt: skip
        with pytest.raises(Fault, match=told):
            said(ask, status, code)
    with pytest.raises(Fault, match="no error in it"):
        refusal(bad, 400, {}, b"Bad Request")


# ---- the promises

METRICS = """
# HELP vllm:kv_cache_usage_perc Share of the blocks held, 0 to 1
vllm:kv_cache_usage_perc{model_name="m"} 0.0
vllm:num_requests_running{model_name="m"} 0.0
vllm:num_requests_waiting{model_name="m"} 0.0
vllm:time_to_first_token_seconds_count{class="0",model_name="m"} 1.0
vllm:time_to_first_token_seconds_count{class="1",model_name="m"} 1.0
vllm:e2e_request_latency_seconds_count{model_name="m"} 2.0
vllm:inter_token_latency_seconds_count{model_name="m"} 2.0
vllm:request_generation_tokens_sum{model_name="m"} 4.0
vllm:generation_tokens_total{model_name="m"} 5.0
vllm:request_success_total{finished_reason="stop",model_name="m"} 3.0
labkit:engine_restarts_total{model_name="m"} 1.0
labkit:streams_dropped_total{model_name="m"} 1.0
"""
START = Sample(0.0, 0, 0, 60_000_000, 27, 3, 7, 500_000_000, 15, 4)
LAST = replace(START, time=9.0, ended=3)
RESULTS = [
    Result(MARKED, "answer", num_tokens=3), Result(replace(MARKED, kind="cancels"), "cancelled"),
    Result(Ask(2, soak_asks.KILLS), "killed"),
]  # fmt: skip
STATE = {"kv_usage": 0.0, "num_blocks": 160, "finished": 2, "failed": 1}
ENDING = Ending(START, [START, LAST], LAST, METRICS, STATE, [], 0, [], [])


def verdicts(results=RESULTS, wanted=3, metrics=None, **changes):
    ending = replace(ENDING, **changes)
    for name, value in (metrics or {}).items():
        text, count = re.subn(rf"(?m)^({name}.*) \S+$", rf"\1 {value}", ending.metrics)
        assert count, name
        ending = replace(ending, metrics=text)
    return {one.text: one.kept for one in soak_promises.promises(results, wanted, ending)}


def test_all_is_kept_where_nothing_is_left():
    assert False not in verdicts().values()
    assert [text for text, kept in verdicts().items() if kept is None] == [
        "who doesn't read is dropped", "api: memory doesn't grow", "engine: memory doesn't grow"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "promise, changes",
    [
        ("every request ends", {"wanted": 4}),
        ("with what the API promises", {"results": [*RESULTS[1:], Result(MARKED, "broken off")]}),
        ("no request is open", {"open": ["cmpl-1"]}),
        ("every block is free", {"state": STATE | {"kv_usage": 0.01}}),
        ("every block is free", {"metrics": {"vllm:kv_cache_usage_perc": 0.01}}),
        ("the engine holds none", {"metrics": {"vllm:num_requests_waiting": 1}}),
        ("TTFT is counted once", {"metrics": {"vllm:e2e_request_latency_seconds_count": 1}}),
        ("TTFT is counted once", {"results": [RESULTS[0]] * 2 + RESULTS[2:]}),
        ("each token is counted once", {"metrics": {"vllm:request_generation_tokens_sum": 3}}),
        ("each token is counted once", {"metrics": {"vllm:generation_tokens_total": 3}}),
        ("page and metrics agree", {"state": STATE | {"finished": 3}}),
        ("an engine for each killed", {"metrics": {"labkit:engine_restarts_total": 2}}),
        ("api: files are closed", {"last": replace(LAST, api_fds=40)}),
        ("engine: files are closed", {"last": replace(LAST, engine_fds=20)}),
        ("engine: files are closed", {"last": replace(LAST, engine_fds=None)}),
        ("no thread is left", {"last": replace(LAST, api_threads=99)}),
        ("SIGTERM ends all of it", {"left": [42]}),
        ("SIGTERM ends all of it", {"exit_status": -9}),
        ("no error goes unhandled", {"tracebacks": ["Traceback"]}),
    ],
)
def test_a_broken_promise_is_named(promise, changes):
    assert verdicts(**changes)[promise] is False


def test_a_request_that_hangs_has_not_ended():
    assert verdicts(results=[*RESULTS[1:], Result(MARKED, "hung")])["every request ends"] is False


def test_somebody_must_be_dropped_if_many_read_nothing():
    silent = [Result(Ask(i, "never reads"), "not read") for i in range(30)]
    promise = "who doesn't read is dropped"
    assert verdicts(results=silent)[promise]
    none = {"labkit:streams_dropped_total": 0}
    assert verdicts(results=silent, metrics=none)[promise] is False


def run_of(rss, count=100, **more):
    """A sample for each 100 requests."""
    return [replace(START, time=i, ended=100 * i, **rss(i), **more) for i in range(count)]


def test_memory_that_grows_is_seen_and_a_cache_that_fills_is_not():
    leak = run_of(lambda i: {"api_rss": 60_000_000 + 1_000_000 * i})
    full = run_of(lambda i: {"api_rss": 60_000_000 + 1_000_000 * min(i, 40)})
    assert soak_promises.growth(leak, "api")["per_1000"] == pytest.approx(1e7)
    assert soak_promises.growth(full, "api")["per_1000"] == 0
    assert verdicts(samples=leak)["api: memory doesn't grow"] is False
    assert verdicts(samples=full)["api: memory doesn't grow"] is True
    assert soak_promises.growth(leak, "api")["first"] < soak_promises.growth(leak, "api")["last"]


def test_the_engines_memory_is_that_of_its_longest_life():
    first = run_of(lambda i: {"engine_rss": 400}, 10, engine_pid=7)
    second = run_of(lambda i: {"engine_rss": 500}, 50, engine_pid=8)
    none = [replace(START, engine_pid=None, engine_rss=None)]
    found = soak_promises.growth([*first, *none, *second], "engine")
    assert (found["first"], found["last"], found["requests"]) == (500, 500, 2400)
    assert soak_promises.growth(none, "engine")["per_1000"] is None


# ---- the command line


@pytest.fixture
def soaked(monkeypatch):
    """`bench soak` without a server: what it would have found, of ten requests."""

    def put(ending):
        async def soak(*asked):
            return [*RESULTS, *(Result(Ask(i, "looks"), "answer") for i in range(3, 10))], ending

        monkeypatch.setattr(soak_play, "soak", soak)

    return put


def test_the_report_is_written_and_the_picture_drawn(soaked, tmp_path, capsys):
    soaked(ENDING)
    files = ["--json", str(tmp_path / "s.json"), "--plot", str(tmp_path / "s.png")]
    assert cli.main(["soak", "--requests", "10", *files]) == 0, capsys.readouterr().err
    kept = json.loads((tmp_path / "s.json").read_text("utf-8"))
    assert len(kept["samples"]) == 2 and kept["outcomes"][0]["kind"] == "whole"
    assert {"process": "api", "first": 6e7}.items() <= kept["memory"][0].items()
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")


def test_a_broken_promise_is_exit_status_1_and_still_written(soaked, tmp_path, capsys):
    soaked(replace(ENDING, left=[42]))
    assert cli.main(["soak", "--requests", "10", "--json", str(tmp_path / "s.json")]) == 1
    told = capsys.readouterr()
    assert "FAIL bench soak: not kept: SIGTERM ends all of it (exit status 0, 1 pro" in told.err
    rows = json.loads((tmp_path / "s.json").read_text("utf-8"))["promises"]
    assert [row["text"] for row in rows if row["kept"] is False] == ["SIGTERM ends all of it"]


def test_a_picture_can_be_drawn_of_a_time_without_an_engine(tmp_path):
    gap = replace(START, engine_pid=None, engine_rss=None, engine_fds=None)
    soak_plot.save(tmp_path / "s.svg", [START, gap, LAST], "about")
    assert "<svg" in (tmp_path / "s.svg").read_text("utf-8")


# ---- what counters may not do


def test_a_request_that_ran_before_it_was_refused_is_counted_as_begun_and_ended():
    """Two prompts: the first has a token when the engine has no room for the second."""
    metrics = Metrics("m")
    registry = Registry(metrics)
    asked = Asked("completions", [[1], [2]], SamplingParams(max_tokens=9))
    ticket = Ticket("r", asked, TextSide.load("tiny"), lambda *names: None)
    registry.open(ticket)
    token, started = Token("r", 65, None, 0.0), Started("r", 0.0, 0)
    registry.on_step(Step(0.0, 0.1, 0.1, [token], [started], [], 1, 0, 1))
    registry.withdraw(ticket)
    found = soak_promises.totals(metrics.text().decode())
    assert found["vllm:time_to_first_token_seconds_count"] == 1
    assert found["vllm:e2e_request_latency_seconds_count"] == 1
    assert found["vllm:request_success_total"] == 1  # the second never began
    assert not registry.choices and registry.find("r") is None
