"""A learner's copies follow the checkout, and nothing that a learner wrote is ever lost."""

import json

import pytest

from labkit.workbook.copies import sync

NAME = "00_start.ipynb"


def cell(key, source, **more):
    return {"id": key, "cell_type": "code", "metadata": {}, "source": source, **more}


def notebook(*cells):
    return json.dumps({"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


class Desk:
    """A checkout with one notebook in two languages, and a learner's folder."""

    def __init__(self, folder):
        self.source, self.my, self.said = folder / "notebooks 노트북", folder / "my", []

    def publish(self, *cells, name=NAME):
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(notebook(*cells), encoding="utf-8")

    def sync(self):
        self.said.clear()
        sync(self.source, self.my, self.said.append)

    def save(self, *cells, name=NAME):
        (self.my / name).write_text(notebook(*cells), encoding="utf-8")

    def sources(self, name=NAME):
        cells = json.loads((self.my / name).read_text(encoding="utf-8"))["cells"]
        return ["".join(c["source"]) for c in cells]

    def backups(self):
        return sorted((self.my / "backups").glob("*"))


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_MY", str(tmp_path / "my"))
    monkeypatch.setenv("LABKIT_LANG", "en")
    return Desk(tmp_path)


def test_the_first_sync_copies_both_languages_without_a_word(desk):
    desk.publish(cell("a", "one"))
    desk.publish(cell("a", "하나"), name=f"ko/{NAME}")
    desk.sync()
    assert desk.sources() == ["one"]
    assert desk.sources(f"ko/{NAME}") == ["하나"]
    assert desk.said == []


def test_without_a_change_upstream_the_learners_file_stays_byte_for_byte(desk):
    desk.publish(cell("a", "one"))
    desk.sync()
    desk.save(cell("a", "mine"))
    before = (desk.my / NAME).read_bytes()
    desk.sync()
    assert (desk.my / NAME).read_bytes() == before
    assert desk.said == [] and desk.backups() == []


def test_an_untouched_copy_is_replaced_and_it_says_so(desk):
    desk.publish(cell("a", "one"))
    desk.sync()
    desk.publish(cell("a", "two"))
    desk.sync()
    assert desk.sources() == ["two"]
    assert len(desk.said) == 1 and NAME in desk.said[0]
    desk.sync()
    assert desk.said == []


def test_the_learners_exercise_survives_a_change_of_the_same_cell(desk):
    desk.publish(cell("a", "old prose"), cell("ex-00-1", "stub"))
    desk.sync()
    desk.save(cell("a", "old prose"), cell("ex-00-1", "my code", outputs=["out"]))
    desk.publish(cell("a", "new prose"), cell("ex-00-1", "new stub"))
    desk.sync()
    assert desk.sources() == ["new prose", "my code"]
    merged = json.loads((desk.my / NAME).read_text(encoding="utf-8"))
    assert merged["cells"][1]["outputs"] == ["out"]


def test_an_exercise_that_moved_or_lost_its_id_is_found_by_its_metadata(desk):
    mark = {"labkit": {"exercise": "00.1"}}
    desk.publish(cell("ex-00-1", "stub", metadata=mark), cell("a", "x"))
    desk.sync()
    own = {k: v for k, v in cell("", "my code", metadata=mark).items() if k != "id"}
    desk.save(own, cell("a", "x"))
    desk.publish(cell("a", "y"), cell("ex-00-1", "stub", metadata=mark))
    desk.sync()
    assert desk.sources() == ["y", "my code"]


def test_an_untouched_exercise_takes_the_new_stub(desk):
    desk.publish(cell("ex-00-1", "stub"), cell("a", "x"))
    desk.sync()
    desk.save(cell("ex-00-1", "stub"), cell("a", "x"), cell("n", "note"))
    desk.publish(cell("ex-00-1", "new stub"), cell("a", "x"))
    desk.sync()
    assert desk.sources() == ["new stub", "x", "note"]


def test_added_cells_stay_behind_the_cell_that_they_stood_behind(desk):
    desk.publish(cell("a", "A"), cell("b", "B"))
    desk.sync()
    desk.save(cell("t", "top"), cell("a", "A"), cell("n", "1"), cell("m", "2"), cell("b", "B"))
    desk.publish(cell("z", "Z"), cell("b", "B"), cell("a", "A2"))
    desk.sync()
    assert desk.sources() == ["top", "Z", "B", "A2", "1", "2"]


def test_an_edit_is_kept_where_upstream_left_the_cell_alone_and_backed_up_where_not(desk):
    desk.publish(cell("a", "A"), cell("b", "B"))
    desk.sync()
    desk.save(cell("a", "my A"), cell("b", "my B"))
    desk.publish(cell("a", "A"), cell("b", "B2"))
    desk.sync()
    assert desk.sources() == ["my A", "B2"]
    assert "my B" in desk.backups()[0].read_text(encoding="utf-8")
    assert any("1 cells that you edited" in line for line in desk.said)


def test_a_cell_dropped_upstream_goes_unless_the_learner_wrote_in_it(desk):
    desk.publish(cell("a", "A"), cell("b", "B"), cell("ex-00-1", "stub"))
    desk.sync()
    desk.save(cell("a", "A"), cell("b", "B"), cell("ex-00-1", "my code"))
    desk.publish(cell("a", "A2"))
    desk.sync()
    assert desk.sources() == ["A2", "my code"]


def test_doubled_and_missing_ids_give_a_valid_notebook_with_all_cells(desk):
    desk.publish(cell("a", "A"))
    desk.sync()
    nameless = {"cell_type": "code", "metadata": {}, "source": "no id"}
    desk.save(cell("a", "A"), cell("a", "copy"), cell("n", "1"), cell("n", "2"), nameless)
    desk.publish(cell("a", "A2"))
    desk.sync()
    assert desk.sources() == ["A2", "copy", "1", "2", "no id"]
    ids = [c["id"] for c in json.loads((desk.my / NAME).read_text(encoding="utf-8"))["cells"]]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("rubbish", [b'{"cells": [{"id": "a", "sou', b"[1, 2]", b"\xff\xfe", b""])
def test_a_copy_cut_short_is_put_aside_and_replaced(desk, rubbish):
    desk.publish(cell("a", "one"))
    desk.sync()
    (desk.my / NAME).write_bytes(rubbish)
    desk.sync()
    assert desk.sources() == ["one"]
    assert [path.read_bytes() for path in desk.backups()] == [rubbish]
    assert str(desk.backups()[0]) in desk.said[0]


def test_a_broken_notebook_upstream_leaves_the_learners_copy_alone(desk):
    desk.publish(cell("a", "one"))
    desk.sync()
    (desk.source / NAME).write_text("<<<<<<< HEAD", encoding="utf-8")
    desk.sync()
    assert desk.sources() == ["one"]
    assert "git status" in desk.said[0]


def test_a_lost_base_still_keeps_the_learners_exercise_and_a_backup(desk):
    desk.publish(cell("a", "A"), cell("ex-00-1", "stub"))
    desk.sync()
    desk.save(cell("a", "A"), cell("ex-00-1", "my code"))
    (desk.my / ".base" / NAME).write_text("rubbish", encoding="utf-8")
    desk.sync()
    assert desk.sources() == ["A", "my code"]
    assert len(desk.backups()) == 1
    desk.sync()
    assert desk.said == []


@pytest.mark.parametrize("written_before_the_kill", [0, 1])
def test_a_kill_between_two_writes_loses_nothing(desk, monkeypatch, written_before_the_kill):
    from labkit.workbook import copies

    desk.publish(cell("a", "A"), cell("ex-00-1", "stub"))
    desk.sync()
    desk.save(cell("a", "A"), cell("ex-00-1", "my code"), cell("n", "note"))
    desk.publish(cell("a", "A2"), cell("ex-00-1", "stub 2"))
    real, writes = copies.write_atomic, []

    def killed(path, written):
        if len(writes) == written_before_the_kill:
            raise KeyboardInterrupt
        writes.append(path)
        real(path, written)

    monkeypatch.setattr(copies, "write_atomic", killed)
    with pytest.raises(KeyboardInterrupt):
        desk.sync()
    monkeypatch.setattr(copies, "write_atomic", real)
    desk.sync()
    assert desk.sources() == ["A2", "my code", "note"]
    assert "my code" in desk.backups()[0].read_text(encoding="utf-8")


def test_two_backups_in_one_second_are_two_files(desk):
    desk.publish(cell("a", "one"))
    desk.sync()
    for rubbish in (b"1", b"2"):
        (desk.my / NAME).write_bytes(rubbish)
        desk.sync()
    assert {path.read_bytes() for path in desk.backups()} == {b"1", b"2"}


def test_copies_of_two_languages_have_backups_of_their_own(desk):
    desk.publish(cell("a", "one"), name=f"ko/{NAME}")
    desk.sync()
    (desk.my / "ko" / NAME).write_bytes(b"half")
    desk.sync()
    assert desk.backups()[0].name.startswith("ko-00_start-")
