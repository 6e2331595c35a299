"""The ladder: rows measured in a process of their own, kept, and what a learner's part does."""

import json
import os
import time

import pytest

from labkit import paths
from labkit.workbook import catalogue, ladder, ladder_rows, parts, registry, session
from labkit.workbook.figures.ladder import ladder_figure
from labkit.workbook.ladder_rows import Asked
from labkit.workbook.parts import Hole


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_MY", str(tmp_path / "my 한글"))
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def shown(monkeypatch):
    reports = []
    monkeypatch.setattr(session, "_show", reports.append)
    return reports


def save(exercise_id: str, *edit: str) -> None:
    text = Hole.of(registry.get(exercise_id)).reference
    if edit:
        assert text.count(edit[0]) == 1
        text = text.replace(*edit)
    parts.save_part(exercise_id, text)


def of_naive(seconds: float = 60.0) -> Asked:
    return ladder_rows.ask(["naive"], "tiny", "cpu", mine=True, seconds=seconds)


def test_rungs_are_measured_once_and_the_last_one_each_time(shown, capsys):
    ladder.ladder("static", model="tiny")
    assert capsys.readouterr().out.count("tokens/s") == 2
    (first,) = shown
    assert [row[0] for row in first.table.rows] == ["naive", "static"]
    said = repr(first)
    assert "`static` makes" in said and "times as many as `naive`" in said
    assert "None of your passed parts runs on this rung yet" in said
    assert first.picture._repr_png_()[0].startswith(b"\x89PNG")
    save("01.3")  # from tokens to text: on the path, and no engine of the ladder runs it
    ladder.ladder("static", model="tiny")
    out = capsys.readouterr().out
    assert "static (labkit)" in out and "naive" not in out
    assert shown[1].table.rows[0] == first.table.rows[0]


def test_right_parts_stand_beside_labkits_own_with_the_same_tokens(shown):
    save("01.1", "torch.tensor", "print(end='noise\\n') or torch.tensor")
    save("01.2")
    ladder.ladder("naive", model="tiny")
    said = repr(shown[0])
    assert "With your parts 01.1, 01.2: " in said and "the same tokens" in said
    assert [row[1] for row in shown[0].table.rows] == ["labkit", "yours"]
    assert "naive with your parts" in shown[0].picture.story


def test_a_part_that_changes_the_tokens_is_told():
    own = ladder_rows.ask(["naive"], "tiny", "cpu").rows["naive"]
    save("01.1", "argmax()", "argmin()")
    wrong = of_naive()
    assert wrong.failed is None and wrong.parts == ["01.1"]
    (told,) = ladder.own_parts(wrong, wrong.rows["naive"], own)
    assert told[0] == "With your parts 01.1" and "in 8 of 8 requests, first at r0@0" in told[1]
    (told,) = ladder.own_parts(wrong, own, own)
    assert "the same tokens" in told[1]


def test_a_part_that_crashes_names_its_line_and_the_ladder_is_still_drawn():
    save("01.2", "token_id = next_token(", "apple = {}['apple']\n    token_id = next_token(")
    broken = ladder.report(["naive"], "cpu", {"naive": row("naive", 5.0)}, of_naive(), None)
    said = repr(broken)
    assert "stopped with an error: `KeyError: 'apple'`" in said
    assert "in your `step`: `apple = {}['apple']`" in said
    assert len(broken.table.rows) == 1 and broken.picture is not None


def test_an_endless_part_is_stopped_and_its_place_named():
    save("01.2", "token_id = next_token(", "while True: pass\n    token_id = next_token(")
    began = time.monotonic()
    found = of_naive(seconds=0.5)
    assert time.monotonic() - began < ladder_rows.LOADING_S
    assert found.failed["why"] == "endless" and not found.rows
    told = " ".join(sentence for _, sentence in ladder.own_parts(found, None, {}))
    assert "your `step` of `labkit.engine.naive`" in told


def test_a_part_that_ends_the_process_or_makes_no_tokens_is_told_too():
    save("01.2", "token_id = next_token(", "import os; os._exit(3)\n    token_id = next_token(")
    found = of_naive()
    assert (found.failed["why"], found.failed["status"]) == ("ended", 3)
    assert "status 3" in " ".join(sentence for _, sentence in ladder.ending(found))
    parts.save_part("01.2", "def step(self):\n    self.line.clear()\n    return []\n")
    assert of_naive().failed["why"] == "crashed"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_what_a_part_has_started_holds_nobody_up_and_ends(tmp_path):
    """It has the pipe open, through which the process speaks."""
    stays = (
        "import os, time\n    if os.fork() == 0:\n        time.sleep(600)\n"
        f"    open({str(tmp_path / 'group')!r}, 'w').write(str(os.getpgrp()))\n"
        "    os._exit(3)\n    token_id = next_token("
    )
    save("01.2", "token_id = next_token(", stays)
    found = of_naive()
    assert (found.failed["why"], found.failed["status"]) == ("ended", 3)
    group = int((tmp_path / "group").read_text())
    assert group != os.getpgrp()
    with pytest.raises(ProcessLookupError):
        for _ in range(200):
            os.killpg(group, 0)
            time.sleep(0.05)


def test_a_damaged_part_is_left_out_and_told():
    parts.save_part("01.2", "def step(self):\n    return oops(\n")
    found = of_naive()
    assert found.parts == [] and found.rows
    said = repr(ladder.report(["naive"], "cpu", {"naive": row("naive", 5.0)}, found, None))
    assert "One part is left out" in said and "exercise 01.2" in said
    assert said.count("2026-11-30") == 1  # in the table, labkit's own row alone


def test_an_interrupt_leaves_no_process(monkeypatch):
    started = []
    popen = ladder_rows.subprocess.Popen

    def watched(*arguments, **options):
        started.append(popen(*arguments, **options))
        return started[0]

    monkeypatch.setattr(ladder_rows.subprocess, "Popen", watched)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ladder_rows, "listen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        of_naive()
    assert started[0].returncode is not None


def test_a_model_that_cannot_be_loaded_is_told_and_nothing_is_raised(shown):
    ladder.ladder("naive", model="no/such/folder")
    assert shown[0].outcome == "crashed" and "no/such/folder" in repr(shown[0])


def test_an_unknown_rung_is_told_with_the_rungs_there_are(shown):
    ladder.ladder("triton")
    assert "'triton'" in repr(shown[0]) and "naive, static" in repr(shown[0])


# ------------------------------------------------------------------ without a process


def row(rung: str, speed: float, date: str = "2026-11-30", **more) -> dict:
    return {
        "rung": rung, "tokens_per_s": speed, "ttft_p50_s": 1 / speed, "kv_held_bytes": 1e6 * speed,
        "tokens": 51, "seconds": 51 / speed, "token_forwards": 1000, "date": date,
        "token_ids": {"r0": [1, 2]},
    } | more  # fmt: skip


def test_rows_are_kept_by_machine_device_model_and_text(folders, monkeypatch):
    key = ladder_rows.key_of("tiny", "cpu")
    assert key == ladder_rows.key_of("tiny", "cpu") != ladder_rows.key_of("another", "cpu")
    ladder_rows.keep(key, {"naive": row("naive", 5.0)})
    ladder_rows.keep(key, {"static": row("static", 4.0)})
    assert [*ladder_rows.kept(key)] == ["naive", "static"]
    monkeypatch.setattr(ladder_rows, "MEASURED", ("kernels",))  # another text
    assert ladder_rows.key_of("tiny", "cpu") != key


HALF = '{"naive": {"rung": "naive", "tokens_per_s": 5, "date": "2026-11-30"}}'
DAMAGED = ["", "[]", "{", '{"naive": 5}', '{"naive": {"date": ""}}', HALF, "[" * 100_000]


@pytest.mark.parametrize("text", DAMAGED, ids=[text[:30] for text in DAMAGED])
def test_a_damaged_file_of_rows_is_as_none(text):
    paths.write_atomic(ladder_rows.path_of("k"), text)
    assert ladder_rows.kept("k") == {}
    ladder_rows.keep("k", {"naive": row("naive", 5.0)})
    assert [*json.loads(ladder_rows.path_of("k").read_text(encoding="utf-8"))] == ["naive"]


def test_where_nothing_can_be_kept_nothing_is_raised(folders):
    (folders / "cache").write_text("a file, no folder", encoding="utf-8")
    ladder_rows.keep("k", {"naive": row("naive", 5.0)})
    assert ladder_rows.kept("k") == {}


def test_the_picture_has_a_mark_for_each_row_and_says_when_it_was_measured():
    own = {"naive": row("naive", 5.0, "2026-11-29"), "static": row("static", 4.0)}
    picture = ladder_figure(["naive", "static"], own, row("static", 3.0), row("static", 2.0))
    names = [text.get_text() for text in picture.legends[0].get_texts()]
    assert names == ["labkit's own", "with your parts", "labkit's, with the textbook's attention"]
    shapes = {line.get_marker() for line in picture.axes[0].lines}
    assert len(shapes) == 3
    assert picture.get_suptitle().endswith("(measured 2026-11-29 to 2026-11-30)")
    assert picture.story == "Tokens/s: naive 5, static 4; static with your parts 3."
    assert ladder_figure(["naive"], own, None, None).legends[0].get_texts()[0].get_text()


@pytest.mark.parametrize("lang", catalogue.LANGUAGES)
def test_both_languages_say_everything(lang, monkeypatch):
    monkeypatch.setenv("LABKIT_LANG", lang)
    own = {"paged": row("paged", 5.0, "2026-11-29"), "continuous": row("continuous", 10.0)}
    yours = Asked({"continuous": row("continuous", 9.0)}, parts=["06.1"], problems=["left out"])
    said = repr(ladder.report(["paged", "continuous"], "cpu", own, yours, row("continuous", 8.0)))
    assert "06.1" in said and "left out" in said and "2026-11-29" in said
    assert ("교과서" in said) == (lang == "ko")
    failed = Asked(failed={"why": "ended", "status": -11, "failed": "Segmentation"}, parts=["06.1"])
    broken = ladder.report(["paged", "continuous"], "cpu", own, failed, None)
    assert "-11" in repr(broken) and broken.folded


def test_it_is_all_in_the_users_own_folders(folders):
    assert ladder_rows.path_of("k").is_relative_to(folders)
    assert "LABKIT_MY" in os.environ
