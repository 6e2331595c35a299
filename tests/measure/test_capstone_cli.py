"""The capstone's command and its leaderboard, on a small workload."""

import json
import math
import subprocess
import sys
import threading

import pytest

from labkit.measure.capstone import Configuration, board, cli, make_workload, options, score
from labkit.measure.capstone.board import BoardError, leaderboard, save
from labkit.measure.capstone.workloads import Workload

GOOD = Configuration(replicas=3, policy="priority", max_num_seqs=256)


@pytest.fixture(scope="module")
def small():
    whole = make_workload()
    return Workload("small", tuple(one for one in whole.arrivals if one.time < 0.5), 0.5)


@pytest.fixture
def home(tmp_path, monkeypatch, small):
    """A learner's folder of its own, and the small workload in place of the whole."""
    monkeypatch.setenv("LABKIT_MY", str(tmp_path / "my"))
    monkeypatch.setattr(cli, "make_workload", lambda *asked: small)
    return tmp_path


# The leaderboard


def test_who_keeps_every_promise_goes_first_then_the_cheaper(small, tmp_path):
    file = tmp_path / "board.json"
    poor = score(Configuration(num_blocks=8), small)
    dear, cheap = score(Configuration(), small), score(GOOD, small)
    assert dear.is_valid and cheap.is_valid and not poor.is_valid and cheap.cost < dear.cost
    for name, one in {"poor": poor, "dear": dear, "cheap": cheap}.items():
        save(name, one, small, file)
    found = leaderboard(small, file)
    assert [one.name for one in found] == ["cheap", "dear", "poor"]
    assert found[0].configuration == GOOD and found[0].cost == cheap.cost
    assert found[0].met == cheap.met and found[0].is_valid


def test_the_same_choice_under_a_name_is_there_once(small, tmp_path):
    file = tmp_path / "board.json"
    one = score(GOOD, small)
    for name in ("a", "b", " a "):
        assert save(name, one, small, file).name == name.strip()
    assert sorted(entry.name for entry in leaderboard(small, file)) == ["a", "b"]


def test_another_workload_has_another_board(small, tmp_path):
    file = tmp_path / "board.json"
    save("a", score(GOOD, small), small, file)
    other = Workload("other", small.arrivals[1:], small.seconds)
    assert leaderboard(other, file) == [] and len(leaderboard(small, file)) == 1


def test_a_score_without_a_good_token_has_its_place(small, tmp_path):
    none = score(Configuration(num_blocks=1), small)
    assert none.cost == math.inf
    save("none", none, small, tmp_path / "board.json")
    assert leaderboard(small, tmp_path / "board.json")[0].cost == math.inf
    assert "Infinity" not in (tmp_path / "board.json").read_text("utf-8")


def test_writers_at_the_same_time_lose_nothing(small, tmp_path):
    one, file = score(GOOD, small), tmp_path / "board.json"
    threads = [
        threading.Thread(target=save, args=(f"team {i}", one, small, file)) for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(leaderboard(small, file)) == 8
    assert [path.name for path in tmp_path.iterdir()] == ["board.json"]


@pytest.mark.parametrize("name", ["", "  ", "x" * 41, "a\x1b[31m"])
def test_a_name_can_be_read_by_others(small, tmp_path, name):
    with pytest.raises(BoardError, match="printable"):
        save(name, score(GOOD, small), small, tmp_path / "board.json")


def test_what_could_not_be_read_again_is_not_written(small, tmp_path):
    file = tmp_path / "board.json"
    save("a", score(GOOD, small), small, file)
    with pytest.raises(BoardError, match="can't be saved: cost of row 1 is '0.0'"):
        save("free", score(GOOD, small, 0.0), small, file)
    assert [entry.name for entry in leaderboard(small, file)] == ["a"]


@pytest.mark.parametrize("text", ["{", "[1]", '[{"name": "a"}]', "{}", "null"])
def test_a_broken_board_is_told_and_not_written_over(small, tmp_path, text):
    file = tmp_path / "board.json"
    file.write_text(text, "utf-8")
    with pytest.raises(BoardError, match="mend it, or move it away"):
        save("a", score(GOOD, small), small, file)
    assert file.read_text("utf-8") == text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cost", "x"), ("cost", [1]), ("cost", -1), ("cost", 10**400), ("cost", True),
        ("cost", float("nan")), ("date", 5), ("date", "soon"), ("is_valid", "no"), ("met", [1]),
        ("met", {"chat": "all"}), ("name", "a\x1b[31m"), ("name", 5), ("contest", 5),
        ("configuration", [1]), ("configuration", {"policy": []}),
    ],
)  # fmt: skip
def test_a_damaged_row_is_told(small, tmp_path, key, value):
    file = tmp_path / "board.json"
    save("a", score(GOOD, small), small, file)
    [row] = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps([row, row | {key: value}]), "utf-8")
    with pytest.raises(BoardError, match="can't be read") as told:
        leaderboard(small, file)
    assert str(told.value).isprintable()


def test_a_board_nested_too_deep_is_told(small, tmp_path):
    file = tmp_path / "board.json"
    file.write_text("[" * 100_000, "utf-8")
    with pytest.raises(BoardError, match="can't be read"):
        leaderboard(small, file)


# The command


def test_a_score_is_told_written_and_saved(home, capsys):
    line = ["score", "--replicas", "3", "--policy", "priority", "--max-num-seqs", "256"]
    more = ["--name", "we", "--write", str(home / "c.json"), "--json", str(home / "s.json")]
    assert cli.main([*line, *more]) == 0
    told = capsys.readouterr().out
    for part in ("3 x H100, policy priority", "modelled", "list price of 2026", "every promise"):
        assert part in told
    assert Configuration.read(home / "c.json") == GOOD
    written = json.loads((home / "s.json").read_text("utf-8"))
    assert written["is_valid"] and written["configuration"] == GOOD.to_json()
    assert [row["name"] for row in written["leaderboard"]] == ["we"]
    assert cli.main(["leaderboard"]) == 0
    assert "we" in capsys.readouterr().out
    assert board.board_file() == home / "my" / "capstone.json"


def test_a_broken_promise_comes_with_a_clue(home, capsys):
    assert cli.main(["score", "--card", "L4", "--replicas", "2"]) == 0
    told = capsys.readouterr().out
    assert "BROKEN" in told and "chat: their stream is slow" in told
    assert cli.main(["score", "--num-blocks", "1"]) == 0
    told = capsys.readouterr().out
    assert "none is good USD" not in told and "no token is good" in told


def test_an_attack_is_told_beside_its_yardstick(home, capsys):
    file = home / "attack.jsonl"
    lines = [
        {"id": f"a{i}", "prompt_token_ids": [1] * 4000, "max_tokens": 1, "priority": -1}
        for i in range(9)
    ]
    file.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    ours = home / "c.json"
    ours.write_text(json.dumps(GOOD.to_json()), "utf-8")
    assert cli.main(["attack", "--config", str(ours), "--workload", str(file)]) == 0
    told = capsys.readouterr().out
    assert "attack.jsonl: 9 requests, 36,009 tokens" in told and "with the yardstick" in told
    assert "against   3 x H100, policy priority" in told
    assert cli.main(["attack", "--built-in", "long-prompts"]) == 1
    assert "arrives at 1 s; 0 to 0.5 s" in capsys.readouterr().err


def test_play_shows_the_task_the_default_and_the_greedy_choice(home, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    assert cli.main(["play"]) == 0
    told = capsys.readouterr().out
    assert told.count("TTFT <= 500 ms") == 1 and "5 x H100;" in told and "2 x H100;" in told
    assert "capstone score --replicas 3" in told


def test_the_game_goes_on_after_a_wrong_line(home, capsys, monkeypatch, small):
    lines = iter([
        "save me", "replicas=1", "speed=9", "replicas=3 policy=priority", "max-num-seqs=256",
        "save me", "board", "reset replicas=2", "help", "quit", "never",
    ])  # fmt: skip
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    player = cli.Player(small, cli.Report("capstone play"))
    player.loop()
    told = capsys.readouterr().out
    for part in ("FAIL there is no score yet", "FAIL replicas is 1", "FAIL 'speed=9' is no"):
        assert part in told
    for values in ("A100, L4", "fcfs, priority", "round-robin, least-loaded"):  # of the help
        assert values in told
    assert leaderboard(small)[0].configuration == GOOD  # each line changes what was before
    assert player.configuration == Configuration(replicas=2)
    assert next(lines) == "never"


def test_options_go_over_the_file(home):
    (home / "c.json").write_text(json.dumps(GOOD.to_json()), "utf-8")
    chosen = options.parse(["score", "--config", str(home / "c.json"), "--replicas", "4"], "x")
    assert chosen.configuration == Configuration(replicas=4, policy="priority", max_num_seqs=256)
    pools = Configuration(router="pools", dedicated=2, lend_below=1, num_blocks=9000)
    changed = options.changed(pools, {"router": "least-loaded", "card": "A100"})
    assert changed == Configuration(card="A100")  # pools and blocks belonged to what it was


@pytest.mark.parametrize(
    "line, told",
    [
        (["score", "--replicas", "1"], "replicas is 1; accepted: whole numbers from 2"),
        (["score", "--card", "T4"], "card is 'T4'"),
        (["score", "--dedicated", "1"], "the router pools"),
        (["score", "--config", "no.json"], "no file 'no.json'"),
        (["score", "--name", "me", "--price", "1"], "list prices"),
        (["attack"], "--workload --built-in is required"),
        (["leaderboard", "--replicas", "2"], "unrecognized"),
        ([], "COMMAND"),
    ],
)
def test_what_cant_be_asked_is_told_in_one_line(line, told, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(line)
    error = capsys.readouterr().err
    assert ended.value.code == 2 and told in error and error.count("\n") == 1


def test_the_help_teaches(capsys):
    for line in (["--help"], ["score", "--help"], ["attack", "--help"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(line)
        assert ended.value.code == 0
    told = capsys.readouterr().out
    assert told.count("python3 -m labkit capstone") >= 5 and "yardstick" in told
    assert all(f"--{name.replace('_', '-')}" in told for name in options.FIELDS)


def test_the_capstone_loads_no_torch():
    code = (
        "import sys, labkit.measure.capstone.cli; "
        "print(sorted({'torch', 'numpy', 'transformers'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    assert done.stdout.strip() == "[]", done.stderr
