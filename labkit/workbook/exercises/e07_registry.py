"""Notebook 07, the API's side of the process boundary: `Registry.on_step`.

Messages are labkit's own; clients, listener and clock are those of `fakes_processes`.
"""

from labkit.workbook.registry import Case, Exercise, Mistake


def _step(*tokens, started=(), preempted=()):
    """A step's message: tokens are (request id, token id or None, finish reason or None)."""
    from labkit.serving.messages import Started, Step, Token

    told = [Token(name, token, reason, 9.0) for name, token, reason in tokens]
    begun = [Started(name, time, cached) for name, time, cached in started]
    return Step(8.0, 9.0, 0.5, told, begun, [*preempted], 0, 0, 0)


def _hear(tickets, *steps):
    """A registry with `tickets` ({name: {n, stop}}) hears of `steps` (arguments of `_step`)."""

    def observe(part):
        from labkit.workbook import fakes_processes as fakes

        aborted, listener = [], fakes.Listener()
        registry = part.Registry(listener, clock=fakes.Clock())
        made = {name: fakes.ticket(name, aborted, **more) for name, more in tickets.items()}
        for ticket in made.values():
            registry.open(ticket)
        for tokens, more in steps:
            registry.on_step(_step(*tokens, **more))
        choices = [choice for ticket in made.values() for choice in ticket.choices]
        return {
            "the observer hears": listener.heard,
            "text so far": {choice.request_id: choice.output.text for choice in choices},
            "first and last token at": {
                c.request_id: [c.first_token, c.last_token] for c in choices
            },
            "open tickets": list(registry.tickets),
            "woken": {
                name: ticket.wake.count if ticket.is_open else ticket.wake.count > 0
                for name, ticket in made.items()
            },
            "aborted in the engine": aborted,
            "started at, cached, preempted": {
                c.request_id: [c.started, c.num_cached_tokens, c.num_preemptions] for c in choices
            },
        }

    return observe


def _heard(heard, text, times, open_tickets, woken, notes, aborted=()):
    return {
        "the observer hears": heard,
        "text so far": text,
        "first and last token at": times,
        "open tickets": open_tickets,
        "woken": woken,
        "aborted in the engine": [*aborted],
        "started at, cached, preempted": notes,
    }


A, B, C = (("A", 65, None), ("A", 66, None), ("A", 67, "length"))
START = {"started": [("A", 7.0, 4)]}

ON_STEP = Exercise(
    id="07.3",
    module="labkit.serving.lifecycle",
    symbol="Registry.on_step",
    core=False,
    minutes=30,
    difficulty=3,
    cases=(
        Case("one_token", _hear({"A": {}}, ([A], START)),
             _heard(["started A", "first token A", "stepped"], {"A": "A"}, {"A": [1, 1]}, ["A"],
                    {"A": 1}, {"A": [7, 4, 0]})),
        Case("three_steps", _hear({"A": {}}, ([A], START), ([B], {}), ([], {})),
             _heard(["started A", "first token A", "stepped", "token A", "stepped", "stepped"],
                    {"A": "AB"}, {"A": [1, 2]}, ["A"], {"A": 2}, {"A": [7, 4, 0]})),
        Case("the_end", _hear({"A": {}}, ([A], START), ([C], {})),
             _heard(["started A", "first token A", "stepped", "token A", "ended A: length",
                     "closed A", "stepped"],
                    {"A": "AC"}, {"A": [1, 2]}, [], {"A": True}, {"A": [7, 4, 0]})),
        Case("one_of_two_answers",
             _hear({"A": {"n": 2}}, ([("A", 65, "length"), ("A/1", 66, None)], {}),
                   ([("A/1", 67, None)], {})),
             _heard(["first token A", "ended A: length", "first token A/1", "stepped",
                     "token A/1", "stepped"],
                    {"A": "A", "A/1": "BC"}, {"A": [1, 1], "A/1": [1, 3]}, ["A"], {"A": 2},
                    {"A": [None, 0, 0], "A/1": [None, 0, 0]})),
        Case("second_answer_later",
             _hear({"A": {"n": 2}}, ([A], {}), ([("A/1", 66, None)], {})),
             _heard(["first token A", "stepped", "first token A/1", "stepped"],
                    {"A": "A", "A/1": "B"}, {"A": [1, 1], "A/1": [2, 2]}, ["A"], {"A": 2},
                    {"A": [None, 0, 0], "A/1": [None, 0, 0]})),
        Case("both_end",
             _hear({"A": {"n": 2}}, ([("A", 65, "length"), ("A/1", 66, "length")], {})),
             _heard(["first token A", "ended A: length", "first token A/1", "ended A/1: length",
                     "closed A", "stepped"],
                    {"A": "A", "A/1": "B"}, {"A": [1, 1], "A/1": [1, 1]}, [], {"A": True},
                    {"A": [None, 0, 0], "A/1": [None, 0, 0]})),
        Case("three_at_once",
             _hear({"A": {"n": 3}, "B": {}},
                   ([("A", 65, None), ("A/1", 66, None), ("B", 67, None), ("A/2", 68, None)], {})),
             _heard(["first token A", "first token A/1", "first token B", "first token A/2",
                     "stepped"],
                    {"A": "A", "A/1": "B", "A/2": "D", "B": "C"},
                    {"A": [1, 1], "A/1": [1, 1], "A/2": [1, 1], "B": [1, 1]}, ["A", "B"],
                    {"A": 1, "B": 1},
                    {name: [None, 0, 0] for name in ("A", "A/1", "A/2", "B")})),
        Case("started_only", _hear({"A": {}}, ([], START)),
             _heard(["started A", "stepped"], {"A": ""}, {"A": [None, None]}, ["A"], {"A": 0},
                    {"A": [7, 4, 0]})),
        Case("token_0", _hear({"A": {}}, ([("A", 0, None)], {})),
             _heard(["first token A", "stepped"], {"A": "\0"}, {"A": [1, 1]}, ["A"], {"A": 1},
                    {"A": [None, 0, 0]})),
        Case("left",
             _hear({"B": {}}, ([("A", 65, None), ("B", 66, None)],
                               {"started": [("A", 7.0, 0), ("B", 7.5, 0)], "preempted": ["A"]})),
             _heard(["started B", "first token B", "stepped"], {"B": "B"}, {"B": [1, 1]}, ["B"],
                    {"B": 1}, {"B": [7.5, 0, 0]})),
        Case("stop_string",
             _hear({"A": {"stop": ("B",)}}, ([A], START), ([B], {}), ([("A", 67, None)], {})),
             _heard(["started A", "first token A", "stepped", "token A", "ended A: stop",
                     "closed A", "stepped", "stepped"],
                    {"A": "A"}, {"A": [1, 2]}, [], {"A": True}, {"A": [7, 4, 0]}, ["A"])),
        Case("preempted",
             _hear({"A": {}}, ([A], START), ([], {"preempted": ["A"]}), ([B], {}),
                   ([], {"preempted": ["A"]})),
             _heard(["started A", "first token A", "stepped", "preempted A", "stepped", "token A",
                     "stepped", "preempted A", "stepped"],
                    {"A": "AB"}, {"A": [1, 3]}, ["A"], {"A": 2}, {"A": [7, 4, 2]})),
        Case("no_token_in_time", _hear({"A": {}}, ([("A", None, "deadline")], {})),
             _heard(["ended A: deadline", "closed A", "stepped"], {"A": ""}, {"A": [None, None]},
                    [], {"A": True}, {"A": [None, 0, 0]})),
        Case("one_of_two_too_late", _hear({"A": {"n": 2}}, ([("A", None, "deadline")], {})),
             _heard(["ended A: deadline", "stepped"], {"A": "", "A/1": ""},
                    {"A": [None, None], "A/1": [None, None]}, ["A"], {"A": 1},
                    {"A": [None, 0, 0], "A/1": [None, 0, 0]})),
    ),
    mistakes=(
        Mistake("stranger_raises",
                (("choice = self.choices.get(token.request_id)",
                  "choice = self.choices[token.request_id]"),)),
        Mistake("ends_with_the_first",
                (("self.close_choice(choice)",
                  "self.close_choice(choice)\n            self.close(choice.ticket)"),)),
        Mistake("woken_by_each_token", (
            ("touched[choice.ticket.id] = choice.ticket", "self.wake(choice.ticket)"),
        )),
        Mistake("never_woken", (("self.wake(ticket)", "pass"),)),
        Mistake("ttft_moves",
                (("choice.first_token = choice.first_token or now", "choice.first_token = now"),)),
        Mistake("ttft_of_the_first_answer",
                (("choice.first_token = choice.first_token or now",
                  "first = choice.ticket.choices[0].first_token\n"
                  "            choice.first_token = choice.first_token or first or now"),)),
        Mistake("ttft_after_preemption",
                (("choice.num_preemptions += 1",
                  "choice.num_preemptions += 1\n            choice.first_token = None"),)),
        Mistake("preemption_is_a_start",
                (("self.observer.preempted(choice)", "self.observer.started(choice)"),)),
        Mistake("end_counted_as_token", (("if token.token_id is not None:", "if True:"),)),
        Mistake("observer_too_late", (
            ("            self.observer.token(choice, now)\n", ""),
            ("            choice.last_token = now\n",
             "            choice.last_token = now\n            self.observer.token(choice, now)\n"),
        )),
        Mistake("never_closed", (("self.close_choice(choice)", "pass"),)),
    ),
)  # fmt: skip

EXERCISES = (ON_STEP,)
