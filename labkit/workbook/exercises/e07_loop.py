"""Notebook 07, the engine's side of the process boundary: `EngineLoop.add` and `run`.

Messages are labkit's own; the engine and the mailbox are those of `fakes_processes`.
"""

from labkit.workbook.registry import Case, Exercise, Mistake


def _ask(*actions, slots=2, cap=2, broken=False):
    """A loop over `TinyEngine`. An action is "step", or a request: {id, prompt, n, ...}.
    A broken engine raises when it is asked."""

    def observe(part):
        from labkit.model.sampling_params import SamplingParams
        from labkit.serving.messages import Add
        from labkit.workbook.fakes_processes import EngineFails, TinyEngine

        engine, answers = TinyEngine(slots, broken), []
        loop = part.EngineLoop(engine, max_queued_requests=cap)
        for action in actions:
            if action == "step":
                loop.step()
                continue
            fields = {"prompt": [65], "n": 1, "arrival": 0.5} | action
            params = SamplingParams(n=fields.pop("n"), max_tokens=3)
            add = Add(fields.pop("id"), fields.pop("prompt"), params, **fields)
            try:
                answers.append(_answer(loop.add(add), cap))
            except EngineFails as error:
                answers.append(f"raises {error}")
        return {
            "answers": answers,
            "open": sorted(loop.open),
            "waiting": sorted(loop.waiting),
            "in the engine": list(engine.known),
            "asked of the engine": engine.asked[-1:],
        }

    return observe


def _answer(answer, cap):
    kind = type(answer).__name__
    if kind != "Refused":
        return f"{kind} {getattr(answer, 'request_id', '')}"
    told = answer.reason if not answer.busy else f"names the cap: {str(cap) in answer.reason}"
    return f"{'busy' if answer.busy else 'bad'} {answer.request_id}: {told}"


def _told(answers, open_ones, waiting, last=None):
    fields = {"arrival": 0.5, "cache_salt": "", "priority": 0, "tenant": "", "deadline": None}
    asked = {"prompt": [65], "n": 1} | fields | {"request_id": open_ones[-1] if open_ones else ""}
    return {
        "answers": answers,
        "open": sorted(open_ones),
        "waiting": sorted(waiting),
        "in the engine": open_ones,
        "asked of the engine": [asked | (last or {})],
    }


def _line(names):
    return [{"id": name} for name in names]


FULL = "busy e: names the cap: True"

ADD = Exercise(
    id="07.4",
    module="labkit.serving.engine_loop",
    symbol="EngineLoop.add",
    core=False,
    minutes=20,
    difficulty=2,
    cases=(
        Case("accepted", _ask({"id": "a"}), _told(["Accepted a"], ["a"], ["a"])),
        Case("all_fields",
             _ask({"id": "a", "prompt": [65, 66], "priority": 3, "tenant": "t", "deadline": 9.0,
                   "cache_salt": "s", "arrival": 1.5}),
             _told(["Accepted a"], ["a"], ["a"],
                   {"prompt": [65, 66], "priority": 3, "tenant": "t", "deadline": 9.0,
                    "cache_salt": "s", "arrival": 1.5})),
        Case("two_answers", _ask({"id": "a", "n": 2}),
             _told(["Accepted a"], ["a", "a/1"], ["a", "a/1"], {"n": 2, "request_id": "a"})),
        Case("bad", _ask({"id": "a"}, {"id": "b", "prompt": [300]}, {"id": "c"}),
             _told(["Accepted a", "bad b: token 300 is not below 256", "Accepted c"], ["a", "c"],
                   ["a", "c"])),
        Case("bad_alone", _ask({"id": "b", "prompt": [300]}),
             _told(["bad b: token 300 is not below 256"], [], [],
                   {"prompt": [300], "request_id": "b"})),
        Case("same_id", _ask({"id": "a"}, {"id": "a"}),
             _told(["Accepted a", "bad a: 'a' is in line already"], ["a"], ["a"])),
        Case("engine_fails", _ask({"id": "a"}, broken=True),
             _told(["raises the GPU is gone"], [], [], {"request_id": "a"})),
        Case("burst", _ask(*_line("abcde")),
             _told([*(f"Accepted {name}" for name in "abcd"), FULL], list("abcd"), list("abcd"))),
        Case("spaced",
             _ask({"id": "a"}, "step", {"id": "b"}, "step", {"id": "c"}, {"id": "d"}, {"id": "e"},
                  slots=1),
             _told([*(f"Accepted {name}" for name in "abc"), "busy d: names the cap: True", FULL],
                   list("abc"), list("bc"))),
        Case("answers_count", _ask({"id": "a", "n": 3}, {"id": "e", "n": 2}),
             _told(["Accepted a", FULL], ["a", "a/1", "a/2"], ["a", "a/1", "a/2"],
                   {"n": 3, "request_id": "a"})),
        Case("too_many_answers", _ask({"id": "e", "n": 5}),
             {**_told([FULL], [], []), "asked of the engine": []}),
        Case("bad_and_full", _ask(*_line("abcd"), {"id": "e", "prompt": [300]}),
             _told([*(f"Accepted {name}" for name in "abcd"), FULL], list("abcd"), list("abcd"))),
        Case("room_again",
             _ask(*_line("abcde"), "step", "step", "step", "step", {"id": "f"}),
             _told([*(f"Accepted {name}" for name in "abcd"), FULL, "Accepted f"],
                   ["c", "d", "f"], ["f"])),
    ),
    mistakes=(
        Mistake("no_cap", (("if excess > 0:", "if False:"),)),
        Mistake("one_too_many", (("if excess > 0:", "if excess > 1:"),)),
        Mistake("full_is_refused_early", (("if excess > 0:", "if excess >= 0:"),)),
        Mistake("free_slots_forgotten", (
            ("self.would_wait(asked.params.n) - self.max_queued_requests",
             "len(self.waiting) + asked.params.n - self.max_queued_requests"),
        )),
        Mistake("answers_not_counted",
                (("self.would_wait(asked.params.n)", "self.would_wait(1)"),)),
        Mistake("busy_is_bad", ((", busy=True)", ")"),)),
        Mistake("bad_is_busy", (("str(error))", "str(error), busy=True)"),)),
        Mistake("bad_one_ends_all",
                (("except ValueError as error:", "except KeyError as error:"),)),
        Mistake("refused_one_stays", (
            ("    try:\n",
             "    self.open[asked.request_id] = self.waiting[asked.request_id] = asked\n"
             "    try:\n"),
        )),
        Mistake("only_the_first_answer",
                (("for request in requests:", "for request in requests[:1]:"),)),
        Mistake("not_counted_as_waiting",
                (("self.open[request.request_id] = self.waiting[request.request_id] = request",
                  "self.open[request.request_id] = request"),)),
        Mistake("fields_lost", ((" priority=asked.priority,", ""),)),
    ),
)  # fmt: skip


def _live(*arrivals):
    """A loop lives on a `Mailbox`. Arrivals: (time, "add a", "abort a", "look" or "stop", work)."""

    def observe(part):
        from labkit.workbook.fakes_processes import Mailbox, NeverEnds

        box = Mailbox([(time, _message(told), work) for time, told, work in arrivals],
                      _message("stop"))  # fmt: skip
        try:
            part.run(box, box.receive, box.send)
        except NeverEnds:
            return {"diary": box.diary[:14], "ends": False}
        return {"diary": box.diary, "ends": True}

    return observe


def _message(told):
    from labkit.model.sampling_params import SamplingParams
    from labkit.serving.messages import Abort, Add, Look, Stop

    kind, _, name = told.partition(" ")
    if kind == "add":
        return Add(name, [65], SamplingParams(), 0.0)
    return {"abort": Abort([name]), "look": Look(0), "stop": Stop()}[kind]


def _diary(*entries):
    return {"diary": [list(entry) for entry in entries], "ends": True}


def _stepped(*begins):
    """The entries of steps: each begins at a time, and is told of a second later."""
    pairs = [((t, "step"), (t + 1, f"sends step ended at {t + 1}")) for t in begins]
    return [entry for pair in pairs for entry in pair]


def _taken(time, what):
    return (time, f"takes {what}"), (time, f"sends answer to {what}")


END = ("sleeps", "takes stop")

RUN = Exercise(
    id="07.5",
    module="labkit.serving.engine_loop",
    symbol="run",
    core=False,
    minutes=20,
    difficulty=2,
    cases=(
        Case("nothing", _live(), _diary((0, "sleeps"), (0, "takes stop"))),
        Case("one_request", _live((0, "add a", 2)),
             _diary(*_taken(0, "add a"), *_stepped(0, 1), (2, "sleeps"), (2, "takes stop"))),
        Case("late", _live((5, "add a", 1)),
             _diary((0, "sleeps"), *_taken(5, "add a"), *_stepped(5), (6, "sleeps"),
                    (6, "takes stop"))),
        Case("look_while_idle", _live((3, "look", 0)),
             _diary((0, "sleeps"), *_taken(3, "look"), (3, "sleeps"), (3, "takes stop"))),
        Case("burst", _live((0, "add a", 1), (0, "add b", 1), (0, "add c", 0)),
             _diary(*_taken(0, "add a"), *_taken(0, "add b"), *_taken(0, "add c"), *_stepped(0, 1),
                    (2, "sleeps"), (2, "takes stop"))),
        Case("during_a_step", _live((0, "add a", 3), (0.5, "add b", 1), (0.6, "look", 0)),
             _diary(*_taken(0, "add a"), *_stepped(0), *_taken(1, "add b"), *_taken(1, "look"),
                    *_stepped(1, 2, 3), (4, "sleeps"), (4, "takes stop"))),
        Case("abort", _live((0, "add a", 50), (0.5, "look", 0), (0.7, "abort a", None)),
             _diary(*_taken(0, "add a"), *_stepped(0), *_taken(1, "look"), (1, "takes abort a"),
                    (1, "sleeps"), (1, "takes stop"))),
        Case("stop_at_once", _live((0, "add a", 50), (1.5, "stop", 0), (1.5, "add b", 1)),
             _diary(*_taken(0, "add a"), *_stepped(0, 1), (2, "takes stop"))),
    ),
    mistakes=(
        Mistake("sleeps_with_work", (("receive(not loop.has_work)", "receive(True)"),)),
        Mistake("spins_without_work", (("receive(not loop.has_work)", "receive(False)"),)),
        Mistake("one_message_a_step", (("while message :=", "if message :="),)),
        Mistake("finishes_first", (
            ("                return\n",
             "                while loop.has_work:\n                    send(loop.step())\n"
             "                return\n"),
        )),
        Mistake("stop_is_a_message",
                (("            if isinstance(message, Stop):\n                return\n", ""),)),
        Mistake("nothing_is_sent", (("if answer is not None:", "if True:"),)),
        Mistake("answers_after_the_step", (
            ("    while True:\n", "    while True:\n        answers = []\n"),
            ("                send(answer)\n", "                answers.append(answer)\n"),
            ("        send(loop.step())",
             "        done = loop.step()\n        for answer in answers:\n"
             "            send(answer)\n        send(done)"),
        )),
    ),
)  # fmt: skip

EXERCISES = (ADD, RUN)
