"""`serve --mine`: a learner's passed parts answer over HTTP, in the process where they belong."""

import pytest

from labkit import mine as mine_of_labkit
from labkit import rungs
from labkit.workbook import parts, registry
from labkit.workbook.parts import Hole

EXERCISES = registry.exercises()
SERVERS = [("--rung", rung) for rung in rungs.RUNGS]  # from the lowest on
SERVERS += [("--rung", "preemptive", "--policy", policy) for policy in ("fair", "deadline")]


def path_of(options: tuple[str, ...]) -> set[str]:
    return mine_of_labkit.on_path(options[1], options[3] if options[2:] else "priority")


LOWEST = {}  # exercise id -> options of the lowest rung that it lies on
for options in reversed(SERVERS):
    LOWEST |= dict.fromkeys(path_of(options), options)
LOWEST = dict(sorted(LOWEST.items()))


@pytest.fixture
def my(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_MY", str(tmp_path / "my"))
    return tmp_path / "my"


def part(exercise_id: str) -> str:
    return Hole.of(registry.get(exercise_id)).reference


def save_all() -> None:
    for exercise_id in EXERCISES:
        parts.save_part(exercise_id, part(exercise_id))


def edited(exercise_id: str, old: str, new: str) -> str:
    assert part(exercise_id).count(old) == 1
    return part(exercise_id).replace(old, new)


def mine_of(server) -> list[str]:
    return server.http.get("/v1/requests").json()["mine"]


def test_every_exercise_of_the_engine_and_its_text_lies_on_some_rungs_path():
    rooms = tuple(f"labkit.{room}." for room in mine_of_labkit.ROOMS)
    on_gpus = "labkit.kernels.gpu."  # of these no server without a GPU makes use
    modules = {one.id: one.module for one in EXERCISES.values()}
    served = {k for k, m in modules.items() if m.startswith(rooms) and not m.startswith(on_gpus)}
    assert {*LOWEST} == served


@pytest.mark.parametrize("exercise_id", LOWEST)
def test_the_solution_of_one_exercise_gives_the_same_text_and_is_named(
    server, shared, my, exercise_id
):
    parts.save_part(exercise_id, part(exercise_id))
    mine = server(*LOWEST[exercise_id], "--mine")
    assert mine_of(mine) == [exercise_id]
    assert f"your own parts: {exercise_id}\n" in mine.said()
    assert mine.text("한글 tea") == shared.text("한글 tea")


@pytest.mark.parametrize("options", SERVERS, ids=lambda options: "-".join(options[1::2]))
def test_all_solutions_at_once_give_the_same_text_and_are_named(server, shared, my, options):
    save_all()
    mine = server(*options, "--mine")
    assert mine_of(mine) == sorted(path_of(options))
    assert f"your own parts: {', '.join(sorted(path_of(options)))}\n" in mine.said()
    assert mine.text("한글 tea") == shared.text("한글 tea")
    streamed = mine.stream("one", max_tokens=24, stop=["\x00"]).rest()
    assert streamed.text() == shared.text("one", max_tokens=24)
    if options[1] != "naive":  # which is greedy
        sampled = {"temperature": 0.8, "seed": 3}
        assert mine.text("two", **sampled) == shared.text("two", **sampled)


def test_all_solutions_run_with_the_engine_in_the_apis_process_too(server, shared, my):
    save_all()
    mine = server("--in-process", "--mine")
    assert mine_of(mine) == sorted(path_of(("--rung", "preemptive")))
    assert mine.text("한글 tea") == shared.text("한글 tea")


def test_on_a_paced_card_parts_of_its_scheduler_run_and_the_decoders_are_not_named(server, my):
    save_all()
    mine = server("--device", "paced:H100", "--mine")
    assert mine_of(mine) == sorted(mine_of_labkit.on_path("paced", "priority"))
    assert mine.complete("hello")["usage"]["completion_tokens"] == 8


def test_a_part_of_either_process_is_what_runs(server, shared, my):
    """One answers from the engine process (the next token), one from the API's (the text)."""
    parts.save_part("01.1", edited("01.1", "argmax()", "argmin()"))
    assert server("--rung", "naive", "--mine").text() != shared.text()
    parts.put_aside("01.1")
    said = "return window[len(context) :]"
    parts.save_part("01.3", edited("01.3", said, said + " * 2"))
    assert len(server("--rung", "naive", "--mine").text()) > len(shared.text())


def test_a_part_of_the_attention_is_what_the_decoder_runs(server, shared, my):
    """With one the server's decoder is the plain one: the compiled loops have no such part."""
    parts.save_part("03.2", edited("03.2", "return out[0]", "return 0 * out[0]"))
    assert server("--rung", "paged", "--mine").text() != shared.text()
    parts.put_aside("03.2")
    parts.save_part("04.4", part("04.4").rstrip().removesuffix("return out") + "return -out\n")
    mine = server("--mine")
    assert mine_of(mine) == ["04.4"] and mine.text() != shared.text()


def test_without_mine_and_off_the_path_nothing_of_it_runs(server, shared, my):
    parts.save_part("01.1", edited("01.1", "argmax()", "argmin()"))
    assert server("--rung", "naive").text() == shared.text()
    mine = server("--mine")  # the last rung has another next token
    assert mine_of(mine) == [] and mine.text() == shared.text()


def test_a_damaged_part_is_told_and_labkits_own_runs(server, shared, my):
    parts.save_part("01.2", "def step(self):\n    return oops(\n")
    mine = server("--rung", "naive", "--mine")
    assert mine_of(mine) == [] and mine.text() == shared.text()
    assert "01.2" in mine.said() and "labkit's own runs" in mine.said()
