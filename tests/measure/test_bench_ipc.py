"""`bench ipc`: rows from known answers and counters, what they are taken to say, one real run."""

import argparse
import json

import psutil
import pytest

from labkit.measure.bench import cli, ipc, ipc_messages, ipc_rows, paced_devices
from labkit.measure.bench.answers import Answer, Usage

BUSY, STEPS = "labkit:device_busy_seconds_total", "labkit:engine_steps_total"
DELIVERED = "labkit:token_delivery_seconds"
WHO = {"device": "H100", "label": "modelled", "home": "process", "batch": 2}


def answer(arrival: float, *times: float) -> Answer:
    return Answer(
        arrival=arrival, chunk_times=[*times], finish_time=times[-1], finish_reason="length",
        usage=Usage(8, len(times)), done=True,
    )  # fmt: skip


ANSWERS = [answer(0.0, 0.5, 0.75, 1.0), answer(0.0, 0.5, 1.5, 2.0)]
BEFORE = {BUSY: 10.0, STEPS: 5.0, "api_cpu": 1.0, "engine_cpu": 2.0}
AFTER = {
    BUSY: 11.5, STEPS: 8.0, "api_cpu": 1.6, "engine_cpu": 2.3, f"{DELIVERED}_sum": 0.006,
    f"{DELIVERED}_count": 3.0,
}  # fmt: skip


def test_a_row_is_what_clients_saw_and_what_grew_on_the_server():
    found = ipc_rows.row(WHO, ANSWERS, 0.5, BEFORE, AFTER)
    assert (found["tokens"], found["seconds"], found["tokens_per_s"]) == (6, 2.0, 3.0)
    assert (found["ttft_p50_s"], found["itl_p50_s"], found["itl_p99_s"]) == (0.5, 0.25, 1.0)
    assert (found["busy"], found["step_s"], found["tokens_per_step"]) == (0.75, 0.5, 2.0)
    assert found["api_cpu_per_token_s"] == pytest.approx(0.1)
    assert found["engine_cpu_per_token_s"] == pytest.approx(0.05)
    assert found["cpu_per_token_s"] == pytest.approx(0.15)
    assert found["delivery_s"] == pytest.approx(0.002)
    assert found["client_cpu"] == 0.25
    assert ipc_rows.api_work(found) == pytest.approx(0.2)


def test_in_one_process_api_and_engine_are_not_told_apart():
    after = {name: value for name, value in AFTER.items() if name != "engine_cpu"}
    found = ipc_rows.row(WHO, ANSWERS, 0.5, BEFORE, after)
    assert found["api_cpu_per_token_s"] is found["engine_cpu_per_token_s"] is None
    assert found["cpu_per_token_s"] == pytest.approx(0.1)


def rows_with(**rates: float) -> list[dict]:
    """Rows of one case whose homes make so many tokens/s."""
    base = ipc_rows.row(WHO, ANSWERS, 0.5, BEFORE, AFTER)
    return [
        base | {"home": name.replace("_", "-"), "tokens_per_s": rate}
        for name, rate in rates.items()
    ]


@pytest.mark.parametrize(
    "apart, outcome",
    [(200.0, "won"), (105.0, ipc_rows.EVEN), (95.0, ipc_rows.EVEN), (60.0, "lost")],
)
def test_whether_separation_wins_follows_from_the_rows(apart, outcome):
    found = ipc_rows.verdict(rows_with(in_process=100.0, thread=90.0, process=apart))
    assert (found["outcome"], found["factor"]) == (outcome, pytest.approx(apart / 100))
    told = ipc_rows.sentence(found)
    assert told.startswith(f"H100, 2 streams: a process {outcome}, × {apart / 100:.2f}")
    assert "(a thread × 0.90)" in told and "the API works 200.00 ms, the device 500.00 ms" in told


def test_an_engine_ahead_of_the_api_is_told():
    row = ipc_rows.row(WHO, ANSWERS, 0.5, BEFORE, AFTER)  # 3 steps in 2 s
    late = row | {"delivery_s": 2.0}
    assert ipc_rows.steps_ahead(late) == pytest.approx(3.0)
    assert ipc_rows.bursts([row]) is None
    assert "in 1 of 2 rows (H100, 2 streams, process)" in ipc_rows.bursts([row, late])


def test_without_both_homes_there_is_no_verdict():
    assert ipc_rows.verdict(rows_with(thread=1.0, process=2.0)) is None
    assert "thread" not in ipc_rows.sentence(
        ipc_rows.verdict(rows_with(in_process=1.0, process=2.0))
    )


def test_the_conclusion_counts_the_cases():
    rates = (200.0, 50.0, 100.0)
    found = [ipc_rows.verdict(rows_with(in_process=100.0, process=rate)) for rate in rates]
    for number, one in enumerate(found):
        one["case"] = f"case {number}"
    told = ipc_rows.conclusion(found)
    assert "Of 3 cases" in told
    assert "won in 1 (case 0), lost in 1 (case 1), changed less than 10% in 1 (case 2)" in told


def test_rows_are_grouped_by_device_and_batch():
    known = [("a", 1, 0), ("b", 1, 1), ("a", 1, 2)]
    rows = [{"device": device, "batch": batch, "n": n} for device, batch, n in known]
    assert [[row["n"] for row in group] for group in ipc_rows.groups(rows)] == [[0, 2], [1]]


@pytest.mark.parametrize(
    "step, seconds, fit", [(0.001, 2.0, (128, 16)), (0.1, 2.0, (20, 1)), (1.0, 2.0, (8, 1))]
)
def test_runs_last_about_as_long_as_asked(step, seconds, fit):
    answers = [answer(0.0, *(1.0 + step * n for n in range(4)))]
    assert ipc.fitting(answers, seconds) == fit


def test_the_message_of_a_step_has_a_token_for_each_stream():
    assert len(ipc_messages.step_of(5).tokens) == 5
    few, many = ipc_messages.costs(1), ipc_messages.costs(50)
    assert few["bytes_per_token"] > many["bytes_per_token"] > 24  # an id has 29 characters
    assert min(many.values()) > 0


def test_devices_are_this_cpu_or_cards():
    cpu, tiny, card, sized = paced_devices.devices("cpu,cpu:tiny,H100,H100:8b,cpu")
    assert [one.label for one in (cpu, tiny, card, sized)] == ["measured"] * 2 + ["modelled"] * 2
    assert tiny.model == "tiny" and card.size is None
    assert sized.cost().weights_s == pytest.approx(7.5e9 * 2 / 3.35e12)
    slow = sized.cost(host_bandwidth=1e9)
    assert slow.per_swapped_block_s == pytest.approx(131_072 * 16 / 1e9)
    assert slow.weights_s == sized.cost().weights_s
    for wrong in ("gpu", "Z80:8b"):
        with pytest.raises(argparse.ArgumentTypeError, match="not known"):
            paced_devices.devices(wrong)
    with pytest.raises(argparse.ArgumentTypeError, match="no card with a size"):
        paced_devices.sized("cpu:8b")


def test_a_home_that_there_is_not_is_refused(capsys):
    with pytest.raises(SystemExit):
        cli.main(["ipc", "--homes", "thread,moon"])
    assert "'moon' is not known" in capsys.readouterr().err


def test_a_short_run_of_all_homes(tmp_path, capsys):
    told = ["--model", "tiny", "--devices", "H100:8b", "--streams", "2", "--seconds", "0.05"]
    before = psutil.Process().children(recursive=True)  # of other tests
    assert cli.main(["ipc", *told, "--json", str(tmp_path / "out.json")]) == 0
    found = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert [row["home"] for row in found["rows"]] == ["in-process", "thread", "process"]
    for row in found["rows"]:
        assert row["label"] == "modelled" and row["batch"] == 2
        assert row["tokens"] == found["rows"][0]["tokens"] >= 2 * ipc.LEAST_TOKENS
        assert row["step_s"] >= 7.5e9 * 2 / 3.35e12
        assert row["delivery_s"] > 0 and row["cpu_per_token_s"] > 0
    assert found["rows"][0]["engine_cpu_per_token_s"] is None
    assert found["rows"][2]["engine_cpu_per_token_s"] > 0
    assert found["rows"][2]["bytes_per_token"] > 24
    assert len(found["verdicts"]) == 1 and found["verdicts"][0]["case"] == "H100:8b, 2 streams"
    assert "Is process separation always best?" in capsys.readouterr().out
    after = [one for one in psutil.Process().children(recursive=True) if one not in before]
    assert not [one for one in after if is_server(one)]


def test_a_server_that_does_not_start_is_told_in_one_line(capsys):
    told = ["--model", "no-such-folder-here", "--devices", "H100:8b", "--homes", "process"]
    assert cli.main(["ipc", *told]) == 1
    said = capsys.readouterr().err
    assert "FAIL bench ipc: the server doesn't start" in said and "no-such-folder-here" in said


def is_server(process: psutil.Process) -> bool:
    try:
        return any("labkit" in word for word in process.cmdline())
    except psutil.Error:
        return False
