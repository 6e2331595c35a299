"""`bench triton-server` and `comparison`: rows from known answers, what is stored, what is told."""

import asyncio
import contextlib
import io
import json
import math

import pytest

from labkit.console import SetupError
from labkit.fleet import triton_server
from labkit.fleet.triton_server import comparison_run, install, playing
from labkit.fleet.triton_server.client import Client, Piece, piece_of
from labkit.fleet.triton_server.playing import Timed
from labkit.fleet.triton_server.repository import Served
from labkit.fleet.triton_server.server import ServerError
from labkit.measure.bench import cli
from labkit.measure.bench import triton_server as bench
from labkit.measure.bench.report import Report
from labkit.measure.workload import WorkloadRequest


def test_a_row_is_of_whole_answers():
    timed = [Timed(0.0, [1.0, 2.0, 4.0]), Timed(1.0, [1.5, 5.0]), Timed(0.5, [], "HTTP 503: full")]
    found = playing.row({"server": "x"}, timed)
    assert (found["requests"], found["failed"], found["tokens"]) == (3, 1, 5)
    assert found["tokens_per_s"] == 1.0  # 5 tokens from the first arrival at 0 to the last at 5
    assert (found["ttft_p50_s"], found["ttft_p99_s"]) == (0.5, 1.0)
    assert (found["e2e_p50_s"], found["e2e_p99_s"]) == (4.0, 4.0)


def test_a_row_of_failures_has_no_figures():
    found = playing.row({}, [Timed(0.0, [], "gone")])
    assert found["failed"] == 1 and found["ttft_p50_s"] is None and "tokens_per_s" not in found


def stats(requests, calls, waited_ns):
    queue = {"ns": waited_ns, "count": requests}
    return {
        "inference_count": requests, "execution_count": calls, "inference_stats": {"queue": queue}
    }  # fmt: skip


def test_what_the_server_counted_is_of_the_run_alone():
    found = playing.batching_facts(stats(1, 1, 5_000_000_000), stats(9, 3, 9_000_000_000))
    assert found == {"mean_batch": 4.0, "queue_mean_s": 0.5}
    nothing = playing.batching_facts(stats(1, 1, 5), stats(1, 1, 5))
    assert nothing == {"mean_batch": None, "queue_mean_s": None}


def test_one_token_comes_without_its_list():
    assert piece_of({"output_ids": 7, "finish_reason": ""}).token_ids == [7]
    assert piece_of({"output_ids": [7, 8], "finish_reason": "stop"}).finish_reason == "stop"
    with pytest.raises(ServerError, match="out of blocks"):
        piece_of({"error": "out of blocks"})


def test_requests_come_as_token_ids_at_their_times():
    asked = playing.asked_of("tiny", 5, 2.0, 0)
    assert len(asked) == 5 and all(one.prompt is None for one in asked)
    assert asked[0].arrival_s == 0 < asked[-1].arrival_s
    assert asked == playing.asked_of("tiny", 5, 2.0, 0)
    assert {one.arrival_s for one in playing.asked_of("tiny", 5, math.inf, 0)} == {0}


@pytest.mark.parametrize("device", ["cpu", "A100:8b"])
def test_the_stored_results_are_of_real_runs_and_can_be_shown(device):
    found = comparison_run.read_stored(device)
    assert found["date"] and found["machine"]["cpu"] and found["version"]
    assert found["label"] == ("measured" if device == "cpu" else "modelled")
    ways = [
        row["server"] if row["server"] == comparison_run.OWN else row["batching"]
        for row in found["rows"]
    ]
    assert ways == [*comparison_run.WAYS]
    assert all(row["failed"] == 0 and row["tokens_per_s"] > 0 for row in found["rows"])
    assert len(found["models"]) == (4 if device == "cpu" else 0)
    report = Report("triton-server", io.StringIO())
    bench.tell(found, report)
    shown = report.stream.getvalue()
    assert found["date"] in shown and "dynamic, whole" in shown


def test_a_batch_of_whole_requests_keeps_the_first_token_back():
    """What the figures are there to show, on the paced card, where nothing disturbs them."""
    rows = {row["batching"]: row for row in comparison_run.read_stored("A100:8b")["rows"][:3]}
    whole, streamed, continuous = (rows[way] for way in comparison_run.WAYS[:3])
    assert whole["ttft_p50_s"] == whole["e2e_p50_s"]
    assert whole["ttft_p50_s"] > streamed["ttft_p50_s"] > 10 * continuous["ttft_p50_s"]


def test_where_nothing_is_installed_the_stored_result_says_that_it_is_one(monkeypatch):
    monkeypatch.setattr(install, "why_not", lambda: "it is built for Linux.")
    found = triton_server.comparison()
    assert found["stored"] is True and found["why"] == "it is built for Linux."
    assert found["rows"] == comparison_run.read_stored()["rows"]
    with pytest.raises(SetupError, match="built for Linux"):
        triton_server.comparison(stored=False)


def test_where_it_is_installed_it_is_measured_unless_told_otherwise(monkeypatch):
    async def measure(plan, tell):
        return {"rows": [plan.num_requests]}

    monkeypatch.setattr(install, "why_not", lambda: "")
    monkeypatch.setattr(comparison_run, "measure", measure)
    found = triton_server.comparison(num_requests=3)
    assert found == {"rows": [3], "stored": False, "why": ""}
    assert triton_server.comparison(stored=True)["stored"] is True


def test_it_can_be_called_in_a_notebook_whose_loop_runs(monkeypatch):
    async def measure(plan, tell):
        return {"rows": []}

    async def cell():
        return triton_server.comparison()

    monkeypatch.setattr(install, "why_not", lambda: "")
    monkeypatch.setattr(comparison_run, "measure", measure)
    assert asyncio.run(cell())["stored"] is False


def test_a_busy_machine_is_told_with_its_figures():
    for busy, told in ((9.0, True), (0.5, False), (None, False)):
        found = comparison_run.read_stored()
        found["machine"] = {"cpu": "x", "cores": 2, "load_before": busy}
        report = Report("triton-server", io.StringIO())
        bench.tell(found, report)
        assert ("on a quiet machine" in report.stream.getvalue()) == told


def test_an_unknown_way_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match="'static' is not known; there are dynamic, whole"):
        triton_server.comparison(only=["static"])


def test_the_ways_differ_in_who_makes_batches_and_in_nothing_else():
    plan = comparison_run.Plan(max_num_seqs=4)
    made = comparison_run.ways(plan, {"model": "tiny", "device": "cpu", "dtype": "float32"})
    engines = [one.engine() for one in made.values()]
    assert [one["rung"] for one in engines] == ["paged", "paged", "continuous"]
    assert {one["options"]["max_num_seqs"] for one in engines} == {4}
    assert {one["options"]["kv_memory"] for one in engines} == {"256MB"}


def test_stored_needs_nothing_installed(monkeypatch, capsys):
    monkeypatch.setattr(install, "why_not", lambda: pytest.fail("not asked"))
    assert cli.main(["triton-server", "--stored"]) == 0
    told = capsys.readouterr().out
    assert "This was stored" in told and "who keeps models" in told


def test_without_a_server_the_bench_says_what_to_do(monkeypatch, capsys):
    missing = "Triton Inference Server isn't installed; python3 -m labkit doctor --fix"
    monkeypatch.setattr(install, "why_not", lambda: missing)
    assert cli.main(["triton-server"]) == 1
    assert "doctor --fix" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line, told",
    [
        ("--requests 4", "leave --requests out"),
        ("--rate 1.5", "leave --rate out"),
        ("--model tiny", "leave --model out"),
        ("--max-num-seqs 8", "leave --max-num-seqs out"),
        ("--seed 0", "leave --seed out"),
        ("--workload w.jsonl", "leave --workload out"),
        ("--device H100:8b", "no result of --device H100:8b is stored; choose cpu or A100:8b"),
        ("--device A100:1b", "no result of --device A100:1b is stored"),
    ],
)
def test_with_stored_nothing_is_accepted_and_ignored(line, told, capsys):
    with pytest.raises(SystemExit):
        cli.parse(["triton-server", "--stored", *line.split()])
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("device", bench.KEPT)
def test_what_is_stored_is_of_the_device_that_is_asked_for(device, capsys):
    assert cli.main(["triton-server", "--stored", "--device", device]) == 0
    assert f"device    {device}: m" in capsys.readouterr().out


def test_what_is_not_given_is_as_the_comparison_has_it(monkeypatch):
    asked = []

    def comparison(**plan):
        asked.append({name: plan[name] for name in plan if name not in ("stored", "tell")})
        return comparison_run.read_stored()

    monkeypatch.setattr(comparison_run, "comparison", comparison)
    assert cli.main(["triton-server"]) == 0
    assert cli.main(["triton-server", "--rate", "inf", "--seed", "3"]) == 0
    usual = {"device": "cpu", "given": [], "num_requests": 24}
    assert asked == [usual, usual | {"rate": math.inf, "seed": 3}]
    plan = comparison_run.Plan()  # what the help says
    assert (plan.model, plan.rate, plan.max_num_seqs, plan.seed) == ("smollm2-135m", 1.5, 8, 0)


def test_a_failure_is_told_with_its_reason():
    found = comparison_run.read_stored()
    timed = [Timed(0.0, [1.0, 2.0]), Timed(0.5, [], "HTTP 503: full")]
    found["rows"] = [playing.row({"server": "s", "batching": "b"}, timed)]
    report = Report("triton-server", io.StringIO())
    bench.tell(found, report)
    told = "s, b: 1 of 2 requests failed; the first says: HTTP 503: full"
    assert told in report.content["notes"]


class Pieces:
    """In the place of a client: gives these pieces, whatever is asked."""

    def __init__(self, *pieces):
        self.pieces = pieces

    async def stream(self, *_, **options):
        for piece in self.pieces:
            yield piece

    async def infer(self, *_, **options):
        return self.pieces[-1]


ONE = WorkloadRequest("r", 9, prompt_token_ids=[1], arrival_s=0.0)


def played(client, served=Served("m"), count=1):  # noqa: B008, it is frozen
    return playing.play(client, served, [ONE] * count, lambda text: None)


@pytest.mark.parametrize(
    "pieces, told",
    [
        ([Piece([7], None), Piece([8], None)], "without a finish reason"),
        ([], "without a finish reason"),
        ([Piece([], "stop")], "no token"),
        ([Piece([7], None), Piece([], "stop")], ""),
    ],
)
def test_a_stream_that_stops_short_is_not_whole(pieces, told):
    (found,) = asyncio.run(played(Pieces(*pieces)))
    assert told in found.failure and bool(found.failure) == bool(told)


def test_an_answer_in_one_piece_needs_a_finish_reason_too():
    whole = Served("m", "dynamic", streams=False)
    (found,) = asyncio.run(played(Pieces(Piece([7], "")), whole))
    assert "without a finish reason" in found.failure


@contextlib.asynccontextmanager
async def answering(said: bytes):
    """A server that says the same to everybody, and hangs up. Gives its URL."""

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as one:
        yield f"http://127.0.0.1:{one.sockets[0].getsockname()[1]}"


HEAD, END = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0\r\n\r\n"


def chunk(text: str) -> bytes:
    return f"{len(text):x}\r\n{text}\r\n".encode()


PIECE = chunk('data: {"output_ids":7,"finish_reason":""}\n\n')


@pytest.mark.parametrize(
    "said, told",
    [
        (b"", "Server disconnected"),
        (HEAD + PIECE, "no whole answer"),
        (HEAD + chunk("data: x\n\n") + END, "no whole answer"),
        (HEAD + PIECE + END, "without a finish reason"),
    ],
    ids=["hangs up", "breaks off", "unreadable", "stops short"],
)
def test_what_breaks_off_has_failed_and_the_others_go_on(said, told):
    async def run():
        async with answering(said) as url, Client(url) as client:
            return await played(client, count=2)

    found = asyncio.run(run())
    assert len(found) == 2 and all(told in one.failure for one in found)


def test_a_time_that_is_up_has_a_name():
    async def run():
        async with answering(HEAD + END) as url, Client(url) as client, client.asked("GET", "x"):
            raise TimeoutError

    with pytest.raises(ServerError, match="x: no whole answer: TimeoutError"):
        asyncio.run(run())


@pytest.mark.parametrize("wrong", [["--rate", "0"], ["--device", "A100"], ["--device", "tpu:8b"]])
def test_what_an_option_may_be(wrong, capsys):
    with pytest.raises(SystemExit):
        cli.parse(["triton-server", *wrong])
    assert "FAIL" in capsys.readouterr().err


def test_all_at_once_is_a_rate_too():
    assert cli.parse(["triton-server", "--rate", "inf"]).rate == math.inf


def test_json_has_all_that_was_printed(tmp_path, monkeypatch):
    file = tmp_path / "out.json"
    assert cli.main(["triton-server", "--stored", "--json", str(file)]) == 0
    kept = json.loads(file.read_text("utf-8"))
    assert kept["rows"] == comparison_run.read_stored()["rows"] and kept["formulas"]
