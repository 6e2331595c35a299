"""The process in which a learner's part runs, so that nothing it does can hurt the notebook.

It splices the part into its module, runs the exercise's cases on it, and sends messages back as
JSON: {"ready": ...} once the reference has passed, {"case": ...} as each case begins, and last a
finding (see `checker.Finding`). A part that does not end is stopped from inside by a watchdog
thread, which can still see the line that the part was at; the parent is the second line of
defence.
"""

import builtins
import contextlib
import dis
import io
import json
import os
import signal
import sys
import threading
import traceback
from math import isclose  # of its own: a part may have another one put in its place

from labkit.workbook import cut
from labkit.workbook.parts import Hole
from labkit.workbook.registry import get

PRINTED_LIMIT = 4000  # characters of a learner's prints that are shown
LONGEST_LINE = 1000  # characters of a line of an error


def serve(connection) -> None:
    """Answers check requests until the notebook goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the notebook, which ends us
    lead_a_group(connection)
    home = os.getpid()

    while True:
        try:
            job = json.loads(connection.recv_bytes())
        except EOFError:
            end_the_group()
            return

        def send(message, number=job["job"]):
            if os.getpid() != home:  # a copy that the part has forked
                os._exit(0)
            connection.send_bytes(json.dumps({"job": number, **message}).encode())

        hole = Hole.of(get(job["exercise"]))
        if "torch" in sys.modules:
            sys.modules["torch"].set_grad_enabled(True)  # whatever an earlier part has set
        warm_up(hole)
        send({"ready": True})
        try:
            finding = examine(hole, job["part"], job["seconds"], send)
        except Exception as error:  # a part that even looking at is too much for
            finding = {"outcome": "crashed", "error": told(error)}
        send(finding | {"left": has_children()})


def lead_a_group(connection) -> None:
    """Has whatever a part starts end with this process. What it forks can't speak for it."""
    if hasattr(os, "setpgid"):  # not on Windows
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        os.register_at_fork(after_in_child=connection.close)


def end_the_group() -> None:
    if hasattr(os, "getpgrp") and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)


def has_children() -> bool:
    """Whether something that a part has started is still there."""
    if not hasattr(os, "WNOHANG"):
        return False
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def told(error: BaseException, frames=()) -> str:
    """A traceback of these frames and the error, no line of it too long to be shown."""
    text = "".join(traceback.format_list(frames) + traceback.format_exception_only(error))
    return "\n".join(
        line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + "…"
        for line in text[: 20 * LONGEST_LINE].split("\n")
    )


def spliced(hole: Hole, part: str):
    """A fresh module that is labkit's own but for the part."""
    source = cut.splice(hole.source, {hole.exercise.symbol: part})
    return cut.module_from(hole.exercise.module, source)


def warm_up(hole: Hole) -> None:
    """Runs the reference once, so that imports do not count against the learner's time."""
    for case in hole.exercise.cases:
        found = plain(case.observe(spliced(hole, hole.reference)))
        if not same(found, plain(case.expected)):
            raise AssertionError(f"{hole.exercise.id}: the reference fails case {case.name!r}")
        if same([found], []):
            raise AssertionError("an earlier part has changed what is called the same")
    wrong = spliced(hole, hole.exercise.mistakes[0].apply(hole.reference))
    with contextlib.redirect_stdout(io.StringIO()):
        cases = hole.exercise.cases
        if all(same(attempt(case, wrong)[0], plain(case.expected)) for case in cases):
            raise AssertionError("an earlier part has changed the cases: a mistake passes")


def examine(hole: Hole, part: str, seconds: float, send) -> dict:
    """The finding for one part: passed, wrong or crashed, with what explains it."""
    printed = io.StringIO()
    try:
        module = spliced(hole, part)
    except Exception as error:  # a default value or an annotation that cannot be evaluated
        return {"outcome": "crashed", "error": told(error)}
    unknown = unknown_names(module, hole)
    if unknown:
        return {"outcome": "crashed", "unknown": unknown}
    watchdog = Watchdog(module.__file__, seconds, send)
    seen, failed = [], None
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), watchdog:
        for number, case in enumerate(hole.exercise.cases):
            watchdog.case = number
            send({"case": number})
            found, error = attempt(case, module)
            seen.append(found)
            if failed is None and (error or not same(found, plain(case.expected))):
                failed = {"case": number, "found": found, "error": error}
                watchdog.finding = {"outcome": "crashed" if error else "wrong", **failed}
    if failed is None:
        return {"outcome": "passed"}
    mistake = recognise(hole, seen, failed["case"])
    outcome = "wrong" if mistake else watchdog.finding["outcome"]
    said = printed.getvalue()[-PRINTED_LIMIT:]
    return {"outcome": outcome, "mistake": mistake, "printed": said, **failed}


def attempt(case, module) -> tuple[object, str | None]:
    """What a case observed, and the traceback when the part raised instead."""
    try:
        return plain(case.observe(module)), None
    except BaseException as error:  # SystemExit and KeyboardInterrupt of a part too
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename == module.__file__] or frames[-1:]
        return {"raised": type(error).__name__}, told(error, own)


def recognise(hole: Hole, seen: list, failed: int) -> str | None:
    """The known mistake that this part has made, told by what it did, if there is one.

    Either one that does the same in every case, or else the only one that does the same up to
    the first case that failed, number `failed` (the part may hold another mistake besides).
    The latter says something only where more than a number was observed.
    """
    alike = {}  # mistake -> how many cases from the first on come out the same
    for mistake in hole.exercise.mistakes:
        module = spliced(hole, mistake.apply(hole.reference))
        alike[mistake.name] = 0
        with contextlib.redirect_stdout(io.StringIO()):
            for case, found in zip(hole.exercise.cases, seen, strict=True):
                if not same(attempt(case, module)[0], found):
                    break
                alike[mistake.name] += 1
    whole = [name for name, cases in alike.items() if cases == len(seen)]
    partly = [name for name, cases in alike.items() if cases > failed]
    telling = len(partly) == 1 and isinstance(seen[failed], dict)
    return whole[0] if whole else partly[0] if telling else None


def unknown_names(module, hole: Hole) -> list[str]:
    """Names that the part reads but that exist only in the learner's notebook."""
    owner = module
    for name in hole.exercise.symbol.split("."):
        owner = owner.__dict__[name]
    function = getattr(owner, "__func__", owner)
    function = getattr(function, "fn", function)  # of a kernel, the Python that it is made of
    codes, names = [function.__code__], set()
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if hasattr(constant, "co_code")]
        names |= {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    return sorted(n for n in names if not hasattr(module, n) and not hasattr(builtins, n))


def plain(value):
    """The same value as JSON carries it: tuples as lists; what JSON lacks as its repr."""
    return json.loads(json.dumps(value, default=repr))


def same(one, other) -> bool:
    """Equal, with floats compared to nine digits and True kept apart from 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return isclose(one, other, rel_tol=1e-9)
    return one == other


class Watchdog:
    """Ends this process when its `with` block takes longer than `seconds`.

    First it sends `finding`, if an earlier case has failed already; else one that names the
    line of the part that was running.
    """

    def __init__(self, filename: str, seconds: float, send):
        self.filename, self.seconds, self.send = filename, seconds, send
        self.case, self.finding = 0, None
        self.main = threading.get_ident()
        self.done = threading.Event()

    def __enter__(self):
        threading.Thread(target=self.watch, daemon=True).start()

    def __exit__(self, *_):
        self.done.set()

    def watch(self):
        if self.done.wait(self.seconds):
            return
        try:
            self.send(self.finding or self.endless())
        finally:  # also when the notebook is gone and nobody listens
            os._exit(1)

    def endless(self) -> dict:
        frame = sys._current_frames()[self.main]
        while frame and frame.f_code.co_filename != self.filename:
            frame = frame.f_back
        line = traceback.extract_stack(frame)[-1].line if frame else ""
        return {"outcome": "wrong", "case": self.case, "endless": True, "line": line}
