"""Notebook 01, the token loop: `next_token` and one step of the engine."""

from labkit.workbook.registry import Case, Exercise, Mistake


def _ask(token_ids):
    def observe(part):
        from labkit.workbook.fakes import ScriptedModel

        model, given = ScriptedModel(), list(token_ids)
        token = part.next_token(model, given)
        return {
            "token": int(token),
            "type": type(token).__name__,
            "tokens per forward pass": model.tokens_per_forward,
            "use_cache": model.use_cache,
            "gradients kept": model.kept_gradients,
            "token_ids afterwards": given,
        }

    return observe


def _answer(token, token_ids):
    return {
        "token": token,
        "type": "int",
        "tokens per forward pass": [len(token_ids)],
        "use_cache": [False],
        "gradients kept": False,
        "token_ids afterwards": token_ids,
    }


NEXT_TOKEN = Exercise(
    id="01.1",
    module="labkit.engine.naive",
    symbol="next_token",
    core=True,
    minutes=15,
    difficulty=1,
    cases=(
        Case("one_token", _ask([3]), _answer(3, [3])),
        Case("two_tokens", _ask([3, 1]), _answer(5, [3, 1])),  # 1*3 + 2*1
        Case("whole_sequence", _ask([3, 1, 4, 1, 5]), _answer(2, [3, 1, 4, 1, 5])),  # 46 mod 11
    ),
    mistakes=(
        Mistake("only_last_token", (("[token_ids]", "[token_ids[-1:]]"),)),
        Mistake("first_row", (("logits[0, -1]", "logits[0, 0]"),)),
        Mistake("flat_argmax", (("logits[0, -1].argmax()", "logits.argmax()"),)),
        Mistake("cache_left_on", (("=input_ids, use_cache=False)", "=input_ids)"),)),
        Mistake("tensor_returned", (("int(logits[0, -1].argmax())", "logits[0, -1].argmax()"),)),
        Mistake("gradients_kept", (("torch.inference_mode()", "torch.enable_grad()"),)),
    ),
)


STEPS = 8  # more than any case needs, so that an engine that never stops is seen to go on


def _run(*requests, eos=()):
    """Steps an engine until nothing is left, or STEPS times, and writes down what came out."""

    def observe(part):
        from labkit.engine.request import Request
        from labkit.workbook.fakes import ScriptedModel

        model = ScriptedModel()
        engine = part.NaiveEngine(model, eos_token_ids=eos, clock=model.clock)
        waiting = [Request(name, list(ids), **options) for name, ids, options in requests]
        for request in waiting:
            engine.add(request)
        steps = []
        while len(steps) < STEPS and (engine.has_unfinished() or not steps):
            events = engine.step()
            is_list = isinstance(events, list)
            steps.append([_plain(event) for event in events] if is_list else type(events).__name__)
        return {
            "events of each step": steps,
            "tokens per forward pass": model.tokens_per_forward,
            "output_token_ids": {r.request_id: r.output_token_ids for r in waiting},
            "finish_reason": {r.request_id: r.finish_reason for r in waiting},
            "in line afterwards": [r.request_id for r in engine.line],
        }

    return observe


def _plain(event):
    return [event.request_id, event.token_id, event.finish_reason, event.time]


def _outcome(steps, forwards, outputs, reasons):
    return {
        "events of each step": steps,
        "tokens per forward pass": forwards,
        "output_token_ids": outputs,
        "finish_reason": reasons,
        "in line afterwards": [],
    }


# After [3] the scripted model says 3, then (3+6) % 11 = 9, then (3+6+27) % 11 = 3, ...
STEP = Exercise(
    id="01.2",
    module="labkit.engine.naive",
    symbol="NaiveEngine.step",
    core=True,
    minutes=30,
    difficulty=2,
    cases=(
        Case("nobody_in_line", _run(), _outcome([[]], [], {}, {})),
        Case(
            "one_token",
            _run(("a", [3], {"max_tokens": 1})),
            _outcome([[["a", 3, "length", 1.0]]], [1], {"a": [3]}, {"a": "length"}),
        ),
        Case(
            "three_tokens",
            _run(("a", [3], {"max_tokens": 3})),
            _outcome(
                [[["a", 3, None, 1.0]], [["a", 9, None, 2.0]], [["a", 3, "length", 3.0]]],
                [1, 2, 3],
                {"a": [3, 9, 3]},
                {"a": "length"},
            ),
        ),
        Case(
            "end_of_sequence",
            _run(("a", [3], {"max_tokens": 5}), eos={9}),
            _outcome(
                [[["a", 3, None, 1.0]], [["a", 9, "stop", 2.0]]],
                [1, 2],
                {"a": [3, 9]},
                {"a": "stop"},
            ),
        ),
        Case(
            "end_of_sequence_last",
            _run(("a", [3], {"max_tokens": 2}), eos={9}),
            _outcome(
                [[["a", 3, None, 1.0]], [["a", 9, "stop", 2.0]]],
                [1, 2],
                {"a": [3, 9]},
                {"a": "stop"},
            ),
        ),
        Case(
            "ignore_eos",
            _run(("a", [3], {"max_tokens": 3, "ignore_eos": True}), eos={9}),
            _outcome(
                [[["a", 3, None, 1.0]], [["a", 9, None, 2.0]], [["a", 3, "length", 3.0]]],
                [1, 2, 3],
                {"a": [3, 9, 3]},
                {"a": "length"},
            ),
        ),
        Case(
            "two_in_line",
            _run(("a", [3], {"max_tokens": 2}), ("b", [5], {"max_tokens": 1})),
            _outcome(
                [[["a", 3, None, 1.0]], [["a", 9, "length", 2.0]], [["b", 5, "length", 3.0]]],
                [1, 2, 1],
                {"a": [3, 9], "b": [5]},
                {"a": "length", "b": "length"},
            ),
        ),
    ),
    mistakes=(
        Mistake("prompt_only", (("request.token_ids)", "request.prompt_token_ids)"),)),
        Mistake(
            "one_too_many",
            (("len(request.output_token_ids) ==", "len(request.output_token_ids) >"),),
        ),
        Mistake(
            "stop_lost",
            (("if token_id in self.eos_token_ids and not request.ignore_eos:", "if False:"),),
        ),
        Mistake("ignore_eos_ignored", ((" and not request.ignore_eos", ""),)),
        Mistake("never_leaves", (("self.line.popleft()", "pass"),)),
        Mistake("last_in_line", (("self.line[0]", "self.line[-1]"), (".popleft()", ".pop()"))),
        Mistake(
            "clock_too_early",
            (
                ("request = self.line[0]", "request, now = self.line[0], self.clock()"),
                ("request.finish_reason, self.clock())", "request.finish_reason, now)"),
            ),
        ),
        Mistake(
            "whole_answer_at_once",
            (
                ("request = self.line[0]", "request, events = self.line[0], []"),
                (
                    "    token_id = next_token(self.model, request.token_ids)\n"
                    "    request.output_token_ids.append(token_id)\n"
                    "    if token_id in self.eos_token_ids and not request.ignore_eos:\n"
                    '        request.finish_reason = "stop"\n'
                    "    elif len(request.output_token_ids) == request.max_tokens:\n"
                    '        request.finish_reason = "length"\n'
                    "    if request.finish_reason:\n"
                    "        self.line.popleft()\n"
                    "    return [TokenEvent(request.request_id, token_id, "
                    "request.finish_reason, self.clock())]",
                    "    while not request.finish_reason:\n"
                    "        token_id = next_token(self.model, request.token_ids)\n"
                    "        request.output_token_ids.append(token_id)\n"
                    "        if token_id in self.eos_token_ids and not request.ignore_eos:\n"
                    '            request.finish_reason = "stop"\n'
                    "        elif len(request.output_token_ids) == request.max_tokens:\n"
                    '            request.finish_reason = "length"\n'
                    "        events.append(TokenEvent(request.request_id, token_id, "
                    "request.finish_reason, self.clock()))\n"
                    "    self.line.popleft()\n"
                    "    return events",
                ),
            ),
        ),
    ),
)

EXERCISES = (NEXT_TOKEN, STEP)
