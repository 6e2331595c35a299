"""What all benchmarks share: the command line, one line about what is wrong, the report."""

import argparse
import json
import sys

import pytest

from labkit import __main__ as entry
from labkit import bootstrap, commands
from labkit.console import SetupError
from labkit.measure.bench import arguments, cli
from labkit.measure.bench.report import Column, Report, layout


@pytest.fixture
def ran(monkeypatch):
    """The command sets nothing up and runs nothing; what it would have run is noted."""
    notes = []
    monkeypatch.setattr(bootstrap, "ensure_environment", lambda command: notes.append(command))
    monkeypatch.setattr(commands, "inside", lambda *line: notes.append(line) or 5)
    monkeypatch.delenv(arguments.STARTED_IN, raising=False)
    yield notes
    arguments.os.environ.pop(arguments.STARTED_IN, None)


@pytest.fixture
def a_bench(monkeypatch):
    """Puts a function in the place of `bench scheduler`."""

    def put(run):
        monkeypatch.setattr(cli.BENCHES["scheduler"], "run", run)

    return put


def test_bench_looks_at_its_options_sets_up_and_runs_inside(ran):
    line = ["scheduler", "--steps", "7"]
    assert commands.main(["bench", *line], entry.HELP) == 5
    assert ran == ["bench scheduler --steps 7", ("labkit.measure.bench", line)]


def test_options_are_looked_at_before_anything_is_set_up(ran, capsys):
    with pytest.raises(SystemExit) as ended:
        commands.main(["bench", "offline", "--runs", "0"], entry.HELP)
    assert (ended.value.code, ran) == (2, [])
    assert "'0' is no whole number from 1" in capsys.readouterr().err


@pytest.mark.parametrize("line", [[], ["--help"], *([name, "-h"] for name in cli.BENCHES)])
def test_help_is_told_without_a_set_up(line, ran, capsys):
    with pytest.raises(SystemExit) as ended:
        commands.main(["bench", *line], entry.HELP)
    told = capsys.readouterr().out
    assert (ended.value.code, ran) == (0, [])
    assert all(name in told for name in cli.BENCHES) if line[-1:] != ["-h"] else (
        f"labkit bench {line[0]}" in told and "--json FILE" in told
    )  # fmt: skip


def test_paths_count_from_where_the_benchmark_was_started(ran, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands.main(["bench", "scheduler", "--json", "s.json"], entry.HELP)
    monkeypatch.chdir("/")
    assert arguments.writable("s.json") == tmp_path / "s.json"


@pytest.mark.parametrize(
    "line, told",
    [
        ("ladde", "ladde"),
        ("ladder --rungs naive,quick", "rung 'quick' is not known; accepted are naive, static"),
        ("ladder --rungs ,", "rung '' is not known"),
        ("ladder --plot x.gif", "'x.gif' is no .png, .svg or .pdf"),
        ("ladder --json /no/such/x", "there is no folder '/no/such'"),
        ("ladder --json .", "'.' is a folder"),
        ("offline --dtype float8", "dtype 'float8' is not known; accepted are float32, bfloat16"),
        ("offline --runs 0", "'0' is no whole number from 1"),
        ("offline --runs two", "'two' is no whole number from 1"),
        ("offline --max-num-seqs 0", "'0' is no whole number from 1"),
        ("offline --max-num-batched-tokens -1", "'-1' is no whole number"),
        ("decode --batch 1,0", "'0' is no whole number from 1 to 10,000,000"),
        ("decode --batch 1,,2", "'' is no whole number"),
        ("decode --dtype float16", "dtype 'float16'"),
        ("scheduler --steps 1", "'1' is no whole number from 5"),
        ("scheduler --waiting 99999999999", "from 1 to 10,000,000"),
        ("scheduler --see 1", "--see"),
    ],
)
def test_bad_arguments_end_with_status_2_and_one_line(line, told, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(line.split())
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert told in said.err and said.err.startswith("FAIL ") and said.err.count("\n") == 1


@pytest.mark.parametrize(
    "error",
    [ValueError("a\nb"), OSError("a b"), RuntimeError("a b"), SetupError("a", "b", "c")],
)
def test_what_fails_is_one_line_with_status_1_and_writes_nothing(error, a_bench, tmp_path, capsys):
    def fail(options, report):
        report.keep(some=1)
        raise error

    a_bench(fail)
    assert cli.main(["scheduler", "--json", str(tmp_path / "s.json")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("FAIL bench scheduler: ") and said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_writes_nothing(a_bench, tmp_path, capsys):
    def interrupt(options, report):
        raise KeyboardInterrupt

    a_bench(interrupt)
    assert cli.main(["scheduler", "--json", str(tmp_path / "s.json")]) == 130
    assert list(tmp_path.iterdir()) == []


def test_json_holds_what_was_printed_and_more(a_bench, tmp_path, capsys):
    def measure(options, report):
        report.header(["x = y"], options.seed, dtype="float32")
        report.table("rows", [Column("a", "name"), Column("b", "b s", "{:.1f}")],
                     [{"a": "é", "b": 0.123, "c": [1]}])  # fmt: skip
        report.note("So it is.")

    a_bench(measure)
    file = tmp_path / "s.json"
    assert cli.main(["scheduler", "--seed", "7", "--json", str(file)]) == 0
    written = json.loads(file.read_text(encoding="utf-8"))
    told = capsys.readouterr().out
    assert written["rows"] == [{"a": "é", "b": 0.123, "c": [1]}]
    assert written["notes"] == ["So it is."] and written["formulas"] == ["x = y"]
    assert (written["bench"], written["seed"], written["dtype"]) == ("scheduler", 7, "float32")
    assert set(written["machine"]) >= {"cpu", "cores", "torch", "threads"}
    for part in (written["machine"]["cpu"], "float32", "x = y", "seed      7", "é", "0.1", "So it"):
        assert part in told


def test_a_table_has_a_dash_where_there_is_nothing():
    columns = [Column("a", "name"), Column("b", "ms", lambda seconds: f"{1000 * seconds:.0f}")]
    assert layout(columns, [{"a": "x", "b": 1.5}, {"a": "long", "b": None}]).splitlines() == [
        "name    ms",
        "x     1500",
        "long     -",
    ]


def test_the_machine_is_named():
    from labkit.measure.bench.report import cpu_name

    assert cpu_name()


def test_a_report_goes_where_it_is_told(capsys):
    Report("x", stream=sys.stderr).say("hello")
    assert capsys.readouterr() == ("", "hello\n")


def test_a_file_that_is_there_may_be_written_over(tmp_path):
    file = tmp_path / "a.json"
    file.write_text("{}", encoding="utf-8")
    assert arguments.writable(str(file)) == file
    with pytest.raises(argparse.ArgumentTypeError):
        arguments.writable(str(tmp_path))


@pytest.mark.parametrize("line", ["serve http://127.0.0.1:8000", "ladder --foo"])
def test_an_argument_that_a_benchmark_does_not_know_leads_to_its_own_help(line, capsys):
    with pytest.raises(SystemExit):
        cli.parse(line.split())
    told = capsys.readouterr().err
    assert f"unrecognized arguments: {line.split()[1]}" in told
    assert f"bench {line.split()[0]} --help" in told
