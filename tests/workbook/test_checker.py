"""Whatever a learner's part does, the notebook gets a finding and goes on."""

import os
import time

import pytest

from labkit.workbook import checker, findings, registry
from labkit.workbook.parts import Hole

ITEM = registry.get("00.1")
HEADER, _, _ = Hole.of(ITEM).blank.rpartition("...")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def finding(body, seconds=5.0):
    return checker.check_cell(ITEM, HEADER + body, seconds)


def reference_passes():
    return checker.check_cell(ITEM, Hole.of(ITEM).reference).outcome == "passed"


@pytest.mark.parametrize("body", ["import os; os._exit(3)", "import os, signal; os.abort()"])
def test_a_part_that_ends_its_process_is_crashed(body):
    found = finding(body)
    assert (found.outcome, found.reason) == ("crashed", "check.process_ended")
    assert reference_passes()


@pytest.mark.parametrize(
    "body",
    [
        "raise SystemExit",
        "raise KeyboardInterrupt",
        "return input()",
        "return step_time(num_flops, num_bytes, peak_flops, bandwidth)",
        "return 1 / 0, 'memory'",
        "assert False",
    ],
)
def test_a_part_that_raises_anything_is_crashed(body):
    found = finding(body)
    assert found.outcome == "crashed"
    assert found.error
    assert reference_passes()


def test_a_loop_that_never_gives_python_a_turn_is_stopped_from_outside(monkeypatch):
    """A long call into C holds the interpreter, so the watchdog inside can't speak."""
    found = finding("return sum(range(10**12)), 'memory'", seconds=0.5)
    assert (found.outcome, found.endless) == ("wrong", True)
    assert reference_passes()


def test_an_earlier_failure_is_told_rather_than_a_later_endless_loop():
    body = "while num_bytes == 0:\n        pass\n    return 0.0, 'memory'"
    found = finding(body, seconds=1.0)
    assert (found.outcome, found.case, found.endless) == ("wrong", 0, False)


def test_a_part_that_spoils_the_worker_spoils_no_later_check():
    body = "import labkit.workbook.cut as c; c.splice = None; return 0.0, 'memory'"
    finding(body)
    assert reference_passes()


def test_prints_are_kept_for_the_report_and_cut():
    found = finding("print('x' * 100_000, 'the end'); return 0.0, 'memory'")
    assert found.printed.endswith("the end\n")
    assert len(found.printed) <= 4000
    assert "the end" in repr(findings.report(ITEM, found, 5.0))


def test_a_name_of_the_notebook_is_named():
    found = finding("return helper(num_flops), 'memory'")
    assert (found.outcome, found.unknown) == ("crashed", ["helper"])
    assert "`helper`" in repr(findings.report(ITEM, found, 5.0))


def test_imports_inside_the_part_are_fine():
    body = (
        "import math\n"
        "    slow = max(num_flops / peak_flops, num_bytes / bandwidth)\n"
        "    bound = 'memory' if math.isclose(slow, num_bytes / bandwidth) else 'compute'\n"
        "    return slow, bound"
    )
    assert finding(body).outcome == "passed"


@pytest.mark.parametrize(
    ("cell", "outcome", "reason"),
    [
        (None, "not attempted", "check.cell_not_run"),
        ("", "crashed", "check.no_def"),
        ("x = 1", "crashed", "check.no_def"),
        ("class step_time: pass", "crashed", "check.no_def"),
        ("def step_time(): pass\ndef step_time(): pass", "crashed", "check.unreadable"),
        ("def step_time(a, b):\n    return 1", "wrong", "check.signature"),
        ("def step_time(:\n    return 1", "crashed", "check.syntax"),
        ("%%time\ndef step_time(): pass", "crashed", "check.syntax"),
    ],
)
def test_a_cell_that_cannot_be_spliced_says_why(cell, outcome, reason):
    found = checker.check_cell(ITEM, cell)
    assert (found.outcome, found.reason) == (outcome, reason)
    assert repr(findings.report(ITEM, found, 5.0))


def test_annotations_may_differ_from_the_given_ones():
    reference = Hole.of(ITEM).reference
    bare = reference.replace(": float", "").replace(" -> tuple[float, str]", "")
    assert bare != reference
    assert checker.check_cell(ITEM, bare).outcome == "passed"


def test_an_annotation_that_cannot_be_evaluated_is_crashed():
    text = Hole.of(ITEM).reference.replace("tuple[float, str]", "Tuple[float, str]")
    found = checker.check_cell(ITEM, text)
    assert found.outcome == "crashed"
    assert "Tuple" in found.error


def test_a_mistake_is_named_although_the_part_holds_another_one_besides():
    """Each token decoded alone, as people write it first: the offsets are not moved either."""
    item = registry.get("01.3")
    header, _, _ = Hole.of(item).blank.rpartition("...")
    body = "self.token_ids.append(token_id)\n    return self.decode([token_id])"
    assert checker.check_cell(item, header + body).mistake == "token_alone"


def test_a_decorator_of_the_learners_own_is_kept():
    item = registry.get("01.1")
    cell = (
        '@exercise("01.1", "next_token")\n'
        "@torch.inference_mode()\n"
        "def next_token(model, token_ids):\n"
        "    logits = model(input_ids=torch.tensor([token_ids]), use_cache=False).logits\n"
        "    return logits[0, -1].argmax().item()\n"
    )
    assert checker.check_cell(item, cell).outcome == "passed"


@pytest.mark.parametrize(
    ("exercise_id", "edits"),
    [
        (
            "01.2",
            (("return [TokenEvent(", "yield TokenEvent("), ("self.clock())]", "self.clock())")),
        ),
        ("01.5", (("return sum(", "return 1.0 * sum("),)),
        ("00.1", (('return memory_time, "memory"', 'return [memory_time, "memory"]'),)),
        (
            "01.4",
            (
                ("itl = tuple(", "itl = ("),
                ("/ len(itl) if itl", "/ (len(token_times) - 1) if token_times[1:]"),
            ),
        ),
    ],
)
def test_a_right_value_of_the_wrong_type_is_wrong(exercise_id, edits):
    item = registry.get(exercise_id)
    text = Hole.of(item).reference
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    assert checker.check_cell(item, text).outcome == "wrong"


def test_a_wrong_number_alone_is_not_taken_for_a_known_mistake():
    item = registry.get("01.5")
    header, _, _ = Hole.of(item).blank.rpartition("...")
    found = checker.check_cell(item, header + "return num_prompt_tokens + num_output_tokens")
    assert (found.outcome, found.mistake) == ("wrong", None)


def test_two_checks_at_once_keep_their_findings_apart():
    from concurrent.futures import ThreadPoolExecutor

    other = registry.get("01.5")
    header, _, _ = Hole.of(other).blank.rpartition("...")
    jobs = [(ITEM, Hole.of(ITEM).reference), (other, header + "return 7")] * 4
    with ThreadPoolExecutor(4) as pool:
        outcomes = [f.outcome for f in pool.map(lambda job: checker.check_cell(*job), jobs)]
    assert outcomes == ["passed", "wrong"] * 4


def test_what_a_part_does_to_torch_does_not_help_the_next_one():
    item = registry.get("01.1")
    header, _, _ = Hole.of(item).blank.rpartition("...")
    plain = (
        "logits = model(input_ids=torch.tensor([token_ids]), use_cache=False).logits\n"
        "    return int(logits[0, -1].argmax())"
    )
    checker.check_cell(item, f"{header}torch.set_grad_enabled(False)\n    {plain}")
    assert checker.check_cell(item, header + plain).mistake == "gradients_kept"


@pytest.mark.parametrize(
    "body",
    [
        "return 10**400, 'memory'",
        "x = []\n    for _ in range(900): x = [x]\n    return x, 'memory'",
        "print('\\udc80'); return '\\udc80', 'memory'",
        "return 'x' * 10**6, 'memory'",
    ],
)
def test_strange_values_are_wrong_or_crashed_and_can_be_shown(body):
    found = finding(body)
    assert found.outcome in ("wrong", "crashed")
    shown = findings.report(ITEM, found, 5.0)
    assert len(shown._repr_html_().encode()) + len(repr(shown).encode()) < 20_000
    assert reference_passes()

STAYS = "if os.fork() == 0:\n        time.sleep(600)\n        os._exit(0)\n    return 0.0, 'memory'"


@needs_fork
@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (f"import os, time\n    {STAYS}", "wrong"),
        ("import subprocess\n    subprocess.Popen(['sleep', '600'])\n    return 1", "wrong"),
        (f"import os, time\n    {STAYS.replace('return', 'os.abort() #')}",
         "crashed"),
    ],
)  # fmt: skip
def test_what_a_part_starts_ends_with_its_check(body, outcome):
    """With the worker that it has damaged; the next check has another one."""
    worker = checker._worker
    assert reference_passes()
    group = worker.process.pid
    found = finding(body)
    assert (found.outcome, found.endless) == (outcome, False)
    assert reference_passes()
    assert worker.process.pid != group
    with pytest.raises(ProcessLookupError):
        wait_until_gone(group)
    assert finding("return 0.0, 'memory'").outcome == "wrong"


def wait_until_gone(group):
    """Raises ProcessLookupError when nobody is in the group any more."""
    for _ in range(200):
        os.killpg(group, 0)
        time.sleep(0.05)


def test_a_long_error_is_cut():
    found = finding("raise ValueError('x' * 3_000_000)")
    assert found.outcome == "crashed"
    assert found.error.splitlines()[-1].startswith("ValueError: xxx")
    assert len(findings.report(ITEM, found, 5.0)._repr_html_()) < 100_000


def test_a_part_that_calls_everything_the_same_spoils_no_later_check():
    finding("import labkit.workbook.worker as w; w.same = lambda a, b: True; return 0.0, ''")
    assert finding("return 0.0, 'memory'").outcome == "wrong"


@needs_fork
def test_a_copy_of_the_worker_speaks_to_nobody():
    """It ends by itself where it would answer, so the worker may be kept or not."""
    found = finding("import os\n    os.fork()\n    return 0.0, 'memory'")
    assert (found.outcome, found.endless) == ("wrong", False)
    assert [reference_passes() for _ in range(3)] == [True] * 3


@pytest.mark.parametrize(
    "body",
    [
        "import math; math.isclose = lambda *a, **k: True; return 2.0, 'memory'",
        "import gc\n    for one in gc.get_objects():\n"
        "        if type(one).__name__ == 'Case':\n"
        "            object.__setattr__(one, 'observe', lambda part, one=one: one.expected)\n"
        "    return 2.0, 'memory'",
    ],
    ids=["isclose", "cases"],
)
def test_what_a_part_changes_makes_no_later_part_right(body):
    finding(body)
    assert finding("return 123.0, 'memory'").outcome == "wrong"
    assert reference_passes()
