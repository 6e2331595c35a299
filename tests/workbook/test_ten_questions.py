"""What the numbers say of the ten answers, and what the page and notebook 11 show of it."""

import html.parser
import json
import os
import platform
import re
import shutil
from functools import partial

import full_account
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import bootstrap, commands
from labkit.paths import repo_root
from labkit.workbook import catalogue, parts, predictions, registry, session
from labkit.workbook.ten_questions import cli, kept, scale, shown
from labkit.workbook.ten_questions.account import account, name_of, number, sentence
from labkit.workbook.ten_questions.kept import Comparison
from labkit.workbook.ten_questions.page import html as page_of
from labkit.workbook.ten_questions.questions import (
    CORRECTS,
    OPEN,
    QUESTIONS,
    SHARPENS,
    SUPPORTS,
    verdict,
)

SOURCES = {
    path.stem[:2]: path.read_text(encoding="utf-8")
    for path in sorted((repo_root() / "notebooks" / "source").glob("*.py"))
}
RULES = [(question, rule) for question in QUESTIONS for rule in question.rules]
IDS = [f"{question.number}-{rule.name}" for question, rule in RULES]


@pytest.fixture(autouse=True)
def my(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_MY", str(tmp_path / "my"))
    monkeypatch.setenv("LABKIT_LANG", "en")
    monkeypatch.setattr(session, "_keeps", True)
    return tmp_path / "my"


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """Made once, and copied for each test."""
    folder = tmp_path_factory.mktemp("filled") / "my"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_MY", str(folder))
        full_account.fill()
    return folder


@pytest.fixture
def full(my, filled):
    shutil.copytree(filled, my)
    return my


class Tags(html.parser.HTMLParser):
    """Which tags a page has, with their attributes, and its text."""

    def __init__(self, page: str):
        super().__init__()
        self.tags, self.said = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.said += data


# ---- the questions against the notebooks


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: str(q.number))
def test_its_notebooks_are_those_that_answer_it(question):
    answering = {
        number
        for number, source in SOURCES.items()
        if re.search(rf"^answer\(\s*{question.number},", source, re.MULTILINE)
    }
    assert set(question.notebooks) == answering


@pytest.mark.parametrize(("question", "rule"), RULES, ids=IDS)
def test_the_numbers_of_a_rule_are_those_that_its_notebook_keeps(question, rule):
    source = SOURCES[rule.notebook]
    calls = re.findall(rf"^answer\(\s*{question.number},(.*?)^\)", source, re.M | re.S)
    for name in rule.needs():
        made = question.number == 7 or name.startswith("tokens_per_s_")  # from rows, by name
        assert any(f"{name}=" in call for call in calls) or made, name


@pytest.mark.parametrize(("question", "rule"), RULES, ids=IDS)
def test_a_rule_has_a_sentence_for_each_way_it_can_turn_out(question, rule):
    for way, says in (("yes", rule.holds), ("no", rule.fails)):
        assert catalogue.has(f"report.{question.number}.{rule.name}.{way}") == (says is not None)


def test_predictions_that_belong_to_a_question_are_made_in_a_notebook_and_have_a_name():
    asked = set(re.findall(r'^predict\("([^"]+)"', "\n".join(SOURCES.values()), re.MULTILINE))
    told = [key for question in QUESTIONS for key in question.predictions]
    assert set(told) <= asked and len(told) == len(set(told))
    assert all(catalogue.has(f"report.key.{key}") for key in asked if key < "09")
    assert name_of("09.hit_rate") == "09: hit rate"


@given(st.sampled_from(RULES), st.data())
def test_any_numbers_are_judged_and_told(pair, data):
    question, rule = pair
    floats = st.floats(allow_nan=False, allow_infinity=False)
    numbers = {name: data.draw(floats) for name in rule.needs()}
    found = rule.judge(numbers)
    if found:
        assert found.says in (SUPPORTS, SHARPENS, CORRECTS)
        assert "{" not in sentence(found, question.number)
    assert rule.judge(dict(list(numbers.items())[1:])) is None  # one is missing


def test_numbers_of_the_other_kind_correct_the_group():
    numbers = {"first_text_streamed_s": 1.0, "first_text_unstreamed_s": 5.0}
    last = {"last_text_streamed_s": 5.0, "last_text_unstreamed_s": 5.1}
    assert verdict(QUESTIONS[4].findings({"01": numbers})) == SUPPORTS
    assert verdict(QUESTIONS[4].findings({"01": numbers | last})) == SHARPENS
    last["last_text_unstreamed_s"] = 20.0
    assert verdict(QUESTIONS[4].findings({"01": numbers | last})) == CORRECTS
    assert verdict(QUESTIONS[4].findings({"02": numbers})) == OPEN


# ---- an empty folder, a full one


def test_with_nothing_kept_every_question_is_open_and_says_where_to_run_it(my):
    page = page_of(account())
    tags = Tags(page)
    assert tags.said.count("still open") == 20  # at a glance, and in its section
    assert "Run all cells of notebooks 06, 08" in tags.said
    assert "Run all cells of notebook 01:" in tags.said
    assert "0 of 10" in tags.said and "Nothing has been measured yet" in tags.said
    assert not [tag for tag, _ in tags.tags if tag in ("img", "aside", "svg")]
    assert not my.exists()  # reading makes nothing


def test_with_all_of_it_every_question_is_judged_dated_and_drawn(full):
    found = account()
    verdicts = [one.verdict for one in found.answers]
    assert verdicts == [SHARPENS] * 6 + [SUPPORTS] * 2 + [SHARPENS] * 2
    assert found.num_answered == 10 and found.kept.problems == []
    assert [one.key for one in found.rest] == ["00.bandwidth"]
    tags = Tags(page_of(found))
    assert "10 of 10" in tags.said and "2 of 5" in tags.said
    assert sum(tag == "img" for tag, _ in tags.tags) == len(full_account.COMPARED)
    assert sum(tag == "svg" for tag, _ in tags.tags) == len(full_account.COMPARED) + 1
    assert platform.python_version() in tags.said
    days = re.findall(r"20\d\d-\d\d-\d\d", tags.said)
    findings = sum(len(one.findings) for one in found.answers)
    assert len(days) > findings


def test_the_page_needs_nothing_from_outside_and_lets_nothing_run(full):
    tags = Tags(page_of(account()))
    names = {tag for tag, _ in tags.tags}
    assert not names & {"script", "link", "iframe", "object", "form", "base"}
    for tag, attributes in tags.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        for name in ("src", "href"):
            assert re.match(r"data:image/png;|#", attributes.get(name) or "#"), (tag, attributes)
    (policy,) = [a["content"] for _, a in tags.tags if "http-equiv" in a]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")


@pytest.mark.parametrize("lang", catalogue.LANGUAGES)
def test_both_languages_tell_all_of_it(full, monkeypatch, lang):
    monkeypatch.setenv("LABKIT_LANG", lang)
    page = page_of(account())
    assert f'<html lang="{lang}">' in page
    hangul = len(re.findall("[가-힣]", page))
    assert hangul > 3000 if lang == "ko" else hangul == 0


def test_a_question_answered_in_part_says_which_notebook_is_missing(full):
    full_account.change(full / "answers.json", lambda held: held["6"].pop("03"))
    said = Tags(page_of(account())).said
    assert "Also measured in notebook 03" in said and "Answered in part" in said


def test_predictions_that_were_never_compared_are_named(full):
    full_account.change(full / "predictions.json", lambda held: held.update({"02.wasted": 4}))
    assert "Predicted and never compared: 02.wasted" in Tags(page_of(account())).said


def test_when_all_is_done_nothing_remains(full, monkeypatch):
    monkeypatch.setattr(registry, "exercises", dict)
    assert "Nothing. All ten questions" in Tags(page_of(account())).said
    assert shown.left_open().outcome == "passed"


# ---- what somebody may have written into the files

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&lt;{a}`\u202e\x00\ud800"


def test_hostile_strings_are_text(full):
    def poison_answers(held):
        held["5"]["01"]["measured"][HOSTILE] = 3
        held["5"]["01"]["date"] = HOSTILE
        held["6"][HOSTILE] = held["5"]["01"]
        held[HOSTILE] = HOSTILE

    def poison_compared(held):
        held["01.first_text"]["unit"] = HOSTILE
        held["01.first_text"]["pictures"][0]["story"] = HOSTILE
        held["03.flops"]["pictures"][0]["file"] = "../../../../etc/passwd"
        held["06.four_ways"]["pictures"] = HOSTILE
        held[HOSTILE] = {"measured": 1, "unit": "x"}

    full_account.change(full / "answers.json", poison_answers)
    full_account.change(full / "compared.json", poison_compared)
    full_account.change(full / "predictions.json", lambda held: held.update({HOSTILE: 1}))
    page = page_of(account())
    page.encode("utf-8")  # no half characters
    tags = Tags(page)
    assert not [tag for tag, attributes in tags.tags if tag == "script" or "onerror" in attributes]
    assert sum(tag == "img" for tag, _ in tags.tags) == len(full_account.COMPARED) - 2
    assert "<script>alert(1)</script>" in tags.said and "day not kept" in tags.said
    assert "\u202e" not in page and "\x00" not in page
    for report in (shown.summary(), *[shown.question(n) for n in range(1, 11)]):
        found = Tags(report._repr_html_()).tags
        assert not [t for t, attributes in found if t == "script" or "onerror" in attributes]


@pytest.mark.parametrize("file", ["answers.json", "compared.json", "predictions.json"])
@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe\x00", b"[1]", b"null", b"[" * 100_000, b'{"5": ' + b"9" * 5000 + b"}"],
    ids=["empty", "cut", "bytes", "list", "null", "deep", "long number"],
)
def test_a_damaged_file_is_named_with_a_remedy_and_the_rest_is_shown(full, file, content):
    (full / file).write_bytes(content)
    found = account()
    (problem,) = found.kept.problems
    assert str(full / file) in problem and "run the notebooks' compare and answer cells" in problem
    assert "Not everything in my/ could be read" in Tags(page_of(found)).said


def test_a_folder_in_place_of_a_file_and_a_huge_file_are_named(full, monkeypatch):
    (full / "answers.json").unlink()
    (full / "answers.json").mkdir()
    monkeypatch.setattr(kept, "MOST_BYTES", 100_000)
    (full / "compared.json").write_text(" " * 100_001, encoding="utf-8")
    assert len(account().kept.problems) == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_never_ends_is_not_read(full, kind):
    make = os.mkfifo if kind == "pipe" else partial(os.symlink, "/dev/zero")
    names = ("answers.json", "compared.json", "predictions.json", "progress.json")
    for path in [full / name for name in names] + [full / "parts" / "00.1.py"]:
        path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        make(path)
    picture = full / "pictures" / "01.first_text-1.png"
    found = account()
    assert [name for name in names if any(name in p for p in found.kept.problems)] == list(names)
    assert predictions.kept("answers.json") == {} == parts.notes()
    assert not parts.is_saved("00.1")
    predictions.keep("predictions.json", "01.x", 2.0)
    assert predictions.kept("predictions.json") == {"01.x": 2.0}
    picture.unlink()
    make(picture)
    entry = {"file": picture.name}
    assert kept.picture("01.first_text", entry, full / "compared.json", print) is None


def test_only_a_part_that_python_can_read_counts_as_passed(full):
    odd = ["01.1", "01.2", "01.3"]
    for name, content in zip(odd, [None, b"\x89PNG\xff\xfe", b"def f(\x00"], strict=True):
        path = parts.part_path(name)
        path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content) if content else path.mkdir()
        assert name in {one.id for one in account().not_passed}
        assert session._state(name) != "passed"


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["measured", "date", "01", "unit", "pictures", "x"]), inner),
    max_leaves=8,
)


@settings(deadline=None, max_examples=50)
@given(ODD, ODD, ODD)
def test_whatever_the_entries_are_the_page_is_made(tmp_path_factory, answers, compared, guess):
    my = tmp_path_factory.mktemp("odd")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_MY", str(my))
        for file, held in (
            ("answers.json", {"5": answers, "6": {"01": answers}}),
            ("compared.json", {"01.first_text": compared, "00.x": {"measured": 1, "unit": guess}}),
            ("predictions.json", {"01.work": guess}),
        ):
            (my / file).write_text(json.dumps(held), encoding="utf-8")
        Tags(page_of(account()))


def test_an_answer_of_an_older_labkit_is_named_and_left_out(full):
    old = {"date": "2026-01-01", "measured": {"first_text_streamed_s": 1}}
    full_account.change(full / "answers.json", lambda held: held.update({"5": old}))
    found = account()
    assert "question 5" in found.kept.problems[0] and not found.answers[4].is_answered


@pytest.mark.parametrize("damage", ["missing", "text", "link"])
def test_a_picture_that_cannot_be_shown_is_named(full, damage):
    path = full / "pictures" / "01.first_text-1.png"
    whole = path.read_bytes()
    path.unlink()
    if damage == "text":
        path.write_bytes(b"\x89PNG no more")
    if damage == "link":
        (full / "elsewhere.png").write_bytes(whole)
        path.symlink_to(full / "elsewhere.png")
    found = account()
    assert str(path) in found.kept.problems[0] and "notebook 01" in found.kept.problems[0]
    assert found.answers[4].pictures == []


# ---- the drawn scale


@given(st.none() | st.floats(-kept.LARGEST, kept.LARGEST), st.floats(-kept.LARGEST, kept.LARGEST))
def test_every_prediction_can_be_drawn_inside_its_picture(predicted, measured):
    one = Comparison("01.x", predicted, measured, "s", False, None)
    for drawn in (scale.scale(one), scale.strip([one] if predicted is not None else [])):
        assert "nan" not in drawn and "inf" not in drawn
        places = re.findall(r'\b(?:x|x1|x2|cx)="(-?[\d.]+)"', drawn)
        assert all(0 <= float(place) <= scale.WIDTH for place in places)


@pytest.mark.parametrize(
    ("predicted", "measured", "hit"),
    [(10, 20, True), (10, 5, True), (10, 21, False), (10, 4.9, False), (0, 0, True), (0, 1, False)],
)
def test_within_a_factor_of_2_is_a_hit(predicted, measured, hit):
    assert Comparison("01.x", predicted, measured, "s", False, None).is_hit is hit


def test_numbers_are_short():
    told = [number(value) for value in (0, 4573, 0.122, 1e300, 3e-9)]
    assert told == ["0", "4,573", "0.122", "1e+300", "3e-09"]


# ---- notebook 11


def test_a_question_in_the_notebook_has_verdict_numbers_and_the_learners_picture(full):
    said = shown.question(5)
    assert "sharpens it" in repr(said) and "46.4 times later" in repr(said)
    assert "data:image/png;base64," in said._repr_html_()


@pytest.mark.parametrize("wrong", [0, 11, "5", None, 2.5])
def test_there_is_no_eleventh_question(wrong):
    assert "there are 1 to 10" in repr(shown.question(wrong))
    assert "there are 1 to 10" in repr(shown.what_if(wrong, "01"))


def test_made_up_numbers_are_judged_and_not_kept(my):
    said = repr(shown.what_if(5, "01", first_text_streamed_s=1, first_text_unstreamed_s=9))
    assert "made-up" in said and "9 times as long" in said and not my.exists()


def test_the_notebook_writes_the_same_page(full):
    assert "report.html" in repr(shown.page())
    written = (full / "report.html").read_text(encoding="utf-8")
    assert written == page_of(account())


# ---- the sample that the solutions show


@pytest.fixture
def in_a_solution(monkeypatch):
    monkeypatch.setattr(session, "_keeps", False)


def test_the_sample_is_whole_and_read_like_a_learners_folder():
    found = account(sample=True)
    assert found.kept.problems == [] and found.kept.not_compared == []
    assert found.num_answered == 10 and not any(one.missing for one in found.answers)
    keys = {key for question in QUESTIONS for key in question.predictions}
    assert set(found.kept.comparisons) == keys and found.rest == []
    assert all(one.predicted is not None for one in found.kept.comparisons.values())
    said = catalogue.text("report.sample")
    for days in found.kept.days().values():
        assert all(day in said for day in days)  # the label names every day that stands in it


@pytest.mark.parametrize(("question", "rule"), RULES, ids=IDS)
def test_every_rule_finds_its_numbers_in_the_sample(question, rule):
    found = account(sample=True).answers[question.number - 1]
    assert set(rule.needs()) <= found.measured[rule.notebook].numbers.keys()


@pytest.mark.parametrize("number_of", range(1, 11))
def test_in_a_solution_a_question_shows_the_sample_and_says_so(in_a_solution, number_of):
    said = repr(shown.question(number_of))
    first = said.splitlines()[1]
    assert first.startswith("A sample, not yours: ") and "made up" in first
    assert "still open" not in said and "What your numbers say" not in said
    assert "Made-up predictions" in said


def test_in_a_solution_the_page_and_the_summary_say_that_they_are_of_a_sample(in_a_solution, my):
    assert "A sample, not yours" in repr(shown.summary())
    my.mkdir()
    shown.page()
    said = Tags((my / "report.html").read_text(encoding="utf-8")).said
    assert "The predictions are made up" in said and "your numbers" not in said
    assert "my own" not in said


def test_a_learner_never_sees_the_sample(my):
    for report in (shown.summary(), shown.question(5), shown.left_open()):
        assert "sample" not in repr(report)
    assert account().num_answered == 0


# ---- the command


def test_labkit_report_looks_at_its_options_sets_up_and_hands_them_on(monkeypatch, my):
    ran = []
    monkeypatch.setenv("LABKIT_STARTED_IN", "as before")  # put back afterwards
    monkeypatch.setattr(bootstrap, "ensure_environment", lambda **given: ran.append(given))
    monkeypatch.setattr(commands, "inside", lambda *given: ran.append(given) or 0)
    with pytest.raises(SystemExit):
        commands.main(["report", "--opne"], "")
    assert ran == []
    assert commands.main(["report", "--open", "--lang", "ko"], "") == 0
    handed = ["--open", "--lang", "ko"]
    assert ran == [
        {"command": "report --open --lang ko"},
        ("labkit.workbook.ten_questions", handed),
    ]


def test_the_command_writes_the_file_and_says_how_far_one_is(full, capsys, tmp_path):
    assert cli.main(["--output", str(tmp_path / "r.html"), "--lang", "ko"]) == 0
    assert '<html lang="ko">' in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "10 of 10 questions answered" in capsys.readouterr().out


def test_the_command_warns_of_what_it_could_not_read(full, capsys):
    (full / "answers.json").write_text("{", encoding="utf-8")
    assert cli.main([]) == 0
    assert "WARN" in capsys.readouterr().out and (full / "report.html").is_file()


@pytest.mark.parametrize("output", [".", "no/such/folder/r.html"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_set_up(output, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.parse(["--output", output])
    assert ended.value.code == 2 and output.split("/")[0] in capsys.readouterr().err


def test_a_relative_path_counts_from_where_the_command_was_given(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_STARTED_IN", str(tmp_path))
    assert cli.parse(["--output", "r.html"]).output == tmp_path / "r.html"


def test_without_a_browser_open_says_so(full, monkeypatch, capsys):
    monkeypatch.setattr("labkit.lab.browser", lambda: None)
    assert cli.main(["--open"]) == 0
    assert "open the file in one" in capsys.readouterr().out
