"""The commands of the workbook: what a learner types in a cell."""

import atexit
import os
import re
import shutil
import tempfile

import labkit
from labkit.paths import my_dir
from labkit.workbook import catalogue, checker, cut, parts, pictures, predictions, registry
from labkit.workbook.catalogue import text
from labkit.workbook.findings import report
from labkit.workbook.report import Report, Table

_cells: dict[str, str] = {}  # exercise id -> text of the cell in which it was last defined
_keeps = True  # whether passed parts outlive this session; not in the solutions
_reset_at: dict[str, int] = {}  # exercise id -> cells that had been run when it was reset


def start(notebook: str, language: str = "en", keep: bool = True) -> Report:
    """First line of every notebook. With `keep=False` (solutions) nothing is written to `my/`."""
    global _keeps
    _keeps = keep
    catalogue.set_notebook_language(language)
    predictions.begin(notebook)
    pictures.begin(keep)
    if not keep:
        scratch = tempfile.mkdtemp(prefix="labkit-")
        atexit.register(shutil.rmtree, scratch, ignore_errors=True)
        os.environ["LABKIT_MY"] = scratch
        return Report("note", text("start.scratch", version=labkit.__version__, notebook=notebook))
    items = registry.exercises()
    sentence = text(
        "start",
        version=labkit.__version__,
        notebook=notebook,
        passed=sum(_state(exercise_id) == "passed" for exercise_id in items),
        total=len(items),
        folder=my_dir(),
    )
    return Report("note", sentence)


def keeps() -> bool:
    """Whether this session keeps anything; a solution's doesn't."""
    return _keeps


def language(lang: str) -> Report:
    """Chooses the language of all messages, "en" or "ko", and keeps the choice."""
    if lang not in catalogue.LANGUAGES:
        return Report("note", text("language.unknown", lang=lang))
    result = Report("note", text("language.chosen", lang))
    _keep(result, catalogue.choose_language, lang)
    return result


def exercise(exercise_id: str, symbol: str):
    """Marks the function of an exercise cell. The function itself is left as it is."""

    def register(function):
        import inspect

        try:
            _cells[exercise_id] = inspect.getsource(inspect.unwrap(function))
        except (OSError, TypeError):
            _cells.pop(exercise_id, None)
        return function

    return register


def check(exercise_id: str, seconds: float = checker.SECONDS) -> Report:
    """Runs your part against its cases and says what is right or what broke.

    Four outcomes: passed, wrong, crashed, not attempted. Never raises, and never takes much
    longer than `seconds`. A part that passes is saved under `my/`.
    """
    if not _exists(exercise_id):
        return _no_such(exercise_id)
    if not isinstance(seconds, int | float) or not 0 < seconds <= 600:
        return Report("note", text("check.seconds", seconds=repr(seconds)))
    item = registry.get(exercise_id)
    cell = _cell_of(exercise_id)
    finding = checker.check_cell(item, cell, seconds)
    result = report(item, finding, seconds)
    if finding.outcome == "passed":
        part = parts.part_from_cell(parts.Hole.of(item), cell)
        if _keep(result, parts.save_part, exercise_id, part) and _keeps:
            result.sentences.append(("", text("check.passed.more")))
    if finding.outcome != "not attempted":
        attempts = parts.notes().get(exercise_id, {}).get("attempts", 0) + 1
        _keep(result, parts.note, exercise_id, attempts=attempts, outcome=finding.outcome)
    return result


def hint(exercise_id: str) -> Report:
    """The next hint: first the invariant, then a sketch; after the last, where the solution is."""
    if not _exists(exercise_id):
        return _no_such(exercise_id)
    hints = [f"{exercise_id}.hint{n}" for n in (1, 2, 3) if catalogue.has(f"{exercise_id}.hint{n}")]
    number = parts.notes().get(exercise_id, {}).get("hints", 0) + 1
    if number > len(hints):
        return Report("note", text("hint.last", id=exercise_id))
    title = text("hint.number", number=number, total=len(hints))
    result = Report("note", title, [("", text(hints[number - 1]))])
    _keep(result, parts.note, exercise_id, hints=number)
    return result


def solution(exercise_id: str) -> Report:
    """The part as labkit has it."""
    if not _exists(exercise_id):
        return _no_such(exercise_id)
    hole = parts.Hole.of(registry.get(exercise_id))
    title = text("solution.title", symbol=hole.exercise.symbol, module=hole.exercise.module)
    return Report("note", title, code=hole.reference)


def reset(exercise_id: str) -> Report:
    """Makes an exercise blank again: a passed part goes to `my/backups/`, the empty cell comes.

    In JupyterLab the empty cell appears below; elsewhere its text is shown.
    """
    if not _exists(exercise_id):
        return _no_such(exercise_id)
    hole = parts.Hole.of(registry.get(exercise_id))
    result = Report("note", "")
    backup = _keep(result, parts.put_aside, exercise_id)
    _keep(result, parts.note, exercise_id, outcome="not attempted", hints=0)
    _cells.pop(exercise_id, None)
    _reset_at[exercise_id] = len(_history())
    cell = cut.exercise_cell(hole.source, hole.exercise.symbol, hole.exercise.module, exercise_id)
    done = "reset.done" if backup else "reset.nothing"
    result.title = text(done, id=exercise_id, backup=backup)
    if _shell():
        _shell().set_next_input(cell)
        result.sentences.append(("", text("reset.below")))
    else:
        result.sentences.append(("", text("reset.cell")))
        result.code = cell
    return result


def use(exercise_id: str):
    """The function or class that holds exercise `exercise_id`, for an experiment to run on.

    Your passed parts of its module, up to this exercise, are spliced in; the rest is labkit's
    own, and a banner says which is which. Raises KeyError for an id that doesn't exist.
    """
    symbol = registry.get(exercise_id).symbol
    return getattr(use_module(exercise_id), symbol.split(".")[0])


def use_module(exercise_id: str):
    """The whole module that holds exercise `exercise_id`, with the same parts of yours as `use`."""
    item = registry.get(exercise_id)
    siblings = [
        other
        for other in registry.exercises().values()
        if other.module == item.module and other.id <= exercise_id
    ]
    mine, banner = {}, Report("note", "")
    source = parts.module_source(item.module)
    for sibling in siblings:
        hole = parts.Hole.of(sibling)
        where = {"symbol": f"`{sibling.symbol}`", "id": sibling.id}
        try:
            part = parts.saved_part(hole)
            if part is not None:
                _try_alone(item.module, source, sibling.symbol, part)
        except parts.PartError as error:
            banner.sentences.append(
                ("", text("use.stale", **where, why=text(error.key, **error.values)))
            )
            continue
        if part is not None:
            mine[sibling.symbol] = part
        banner.sentences.append(("", text("use.mine" if part else "use.reference", **where)))
    banner.title = item.module
    _show(banner)
    return cut.module_from(item.module, cut.splice(source, mine))


def _try_alone(module: str, source: str, symbol: str, part: str) -> None:
    """Raises PartError for a part with which its module can't be executed: a `nonlocal` without
    its name, say, or an annotation that means nothing there."""
    try:
        cut.module_from(module, cut.splice(source, {symbol: part}))
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}"
        raise parts.PartError("check.unreadable", reason=why) from None


def progress() -> Report:
    """All exercises and how far you are; kept on disk, so a kernel restart changes nothing."""
    items = list(registry.exercises().values())
    head = ["exercise", "route", "minutes", "state", "attempts"]
    table = Table([text(f"progress.{column}") for column in head], [])
    for item in items:
        state = _state(item.id)
        attempts = parts.notes().get(item.id, {}).get("attempts", 0)
        route = text("route.core" if item.core else "route.further")
        name = f"{item.id} {text(f'{item.id}.title')}"
        table.rows.append([name, route, str(item.minutes), text(f"state.{state}"), str(attempts)])
    passed = sum(_state(item.id) == "passed" for item in items)
    title = text("progress.title", passed=passed, total=len(items))
    return Report("passed" if passed == len(items) else "note", title, table=table)


def _keep(result: Report, action, *arguments, **values):
    """Writes under `my/`; where that fails, the report says so and nothing is raised."""
    try:
        return action(*arguments, **values)
    except OSError as error:
        sentence = ("", text("not_kept", folder=my_dir(), reason=error))
        if sentence not in result.sentences:
            result.sentences.append(sentence)
        return None


def _state(exercise_id: str) -> str:
    if parts.is_saved(exercise_id):
        return "passed"
    outcome = parts.notes().get(exercise_id, {}).get("outcome", "not attempted")
    return outcome if outcome != "passed" else "not attempted"


def _cell_of(exercise_id: str) -> str | None:
    """The newest cell that holds this exercise, also one that Python could not read.

    A cell with a syntax error never ran its decorator, so the input history is asked first.
    """
    marker = re.compile(rf"^[ \t]*@exercise\(\s*['\"]{re.escape(exercise_id)}['\"]", re.MULTILINE)
    for cell in reversed(_history()[_reset_at.get(exercise_id, 0) :]):
        if marker.search(cell):
            return cell
    return _cells.get(exercise_id)


def _history() -> list[str]:
    """The cells run in this kernel, oldest first; empty in plain Python."""
    return _shell().user_ns.get("In", []) if _shell() else []


def _exists(exercise_id) -> bool:
    return isinstance(exercise_id, str) and exercise_id in registry.exercises()


def _no_such(exercise_id) -> Report:
    ids = ", ".join(registry.exercises())
    return Report("note", text("unknown_exercise", id=repr(exercise_id), ids=ids))


def _shell():
    """The running IPython, or None in plain Python."""
    import sys

    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython

    return get_ipython()


def _show(shown: Report) -> None:
    if _shell():
        from IPython.display import display

        display(shown)
    else:
        print(shown)
