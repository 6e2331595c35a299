"""Notebook 01: the token loop without a cache, text from tokens, latency, counted work."""

from labkit.workbook.registry import Case, Exercise, Mistake

# ---------------------------------------------------------------- 01.1 next_token


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

# ---------------------------------------------------------------- 01.2 NaiveEngine.step

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
            steps.append([_plain(event) for event in engine.step()])
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

# ---------------------------------------------------------------- 01.3 Detokenizer.push


def _pieces(token_ids, words=False, flush=False):
    def observe(part):
        from labkit.workbook.fakes import ByteTokenizer, WordTokenizer

        tokenizer = WordTokenizer() if words else ByteTokenizer()
        detokenizer = part.Detokenizer(tokenizer)
        pieces = [detokenizer.push(token_id) for token_id in token_ids]
        return {"pieces": pieces + [detokenizer.flush()]} if flush else {"pieces": pieces}

    return observe


def _cost(part):
    from labkit.workbook.fakes import ByteTokenizer

    tokenizer = ByteTokenizer()
    detokenizer = part.Detokenizer(tokenizer)
    joined = "".join(detokenizer.push(ord("a")) for _ in range(64))
    return {"text": joined, "decodes at most 8 tokens": tokenizer.longest_decode <= 8}


HANGUL = "한글"

PUSH = Exercise(
    id="01.3",
    module="labkit.model.detokenizer",
    symbol="Detokenizer.push",
    core=False,
    minutes=25,
    difficulty=3,
    cases=(
        Case("letters", _pieces(b"Hi"), {"pieces": ["H", "i"]}),
        Case("hangul", _pieces(HANGUL.encode()), {"pieces": ["", "", "한", "", "", "글"]}),
        Case("spaces", _pieces(b"a \n b"), {"pieces": ["a", " ", "\n", " ", "b"]}),
        Case("first_space", _pieces([0, 1, 3], words=True), {"pieces": ["the", " cat", "s"]}),
        Case(
            "special",
            _pieces([0, 4, 1, 4], words=True),
            {"pieces": ["the", "", " cat", ""]},
        ),
        Case(
            "half_at_the_end",
            _pieces("a한".encode()[:-1], flush=True),
            {"pieces": ["a", "", "", "\ufffd"]},
        ),
        Case("cost", _cost, {"text": "a" * 64, "decodes at most 8 tokens": True}),
    ),
    mistakes=(
        Mistake("half_characters", (("window.endswith(REPLACEMENT) or ", ""),)),
        Mistake(
            "token_alone",
            (
                ("self.token_ids[self.prefix_offset :])", "[token_id])"),
                ("window.endswith(REPLACEMENT) or len(window) == len(context)", "False"),
                ("window[len(context) :]", "window"),
            ),
        ),
        Mistake("sent_twice", (("window[len(context) :]", "window"),)),
        Mistake(
            "no_context",
            (
                (
                    "self.prefix_offset = self.read_offset",
                    "self.prefix_offset = len(self.token_ids)",
                ),
            ),
        ),
        Mistake("stripped", (("window[len(context) :]", "window[len(context) :].strip()"),)),
        Mistake(
            "everything_again",
            (
                ("self.prefix_offset : self.read_offset", "0 : self.read_offset"),
                ("self.token_ids[self.prefix_offset :]", "self.token_ids"),
            ),
        ),
        Mistake("thrown_away", (('return ""', 'self.token_ids.pop()\n        return ""'),)),
    ),
)

# ---------------------------------------------------------------- 01.4 latency


def _times(arrival, token_times):
    def observe(part):
        try:
            found = part.latency(arrival, token_times)
        except ValueError:
            return {"raised": "ValueError"}
        return {
            "ttft": found.ttft,
            "itl": list(found.itl),
            "tpot": found.tpot,
            "e2e": found.e2e,
        }

    return observe


def _felt(ttft, itl, tpot, e2e):
    return {"ttft": ttft, "itl": itl, "tpot": tpot, "e2e": e2e}


LATENCY = Exercise(
    id="01.4",
    module="labkit.measure.metrics",
    symbol="latency",
    core=False,
    minutes=15,
    difficulty=1,
    cases=(
        Case("one_token", _times(10.0, [10.5]), _felt(0.5, [], None, 0.5)),
        Case("two_tokens", _times(10.0, [10.5, 10.75]), _felt(0.5, [0.25], 0.25, 0.75)),
        Case(
            "uneven_gaps",
            _times(8.0, [10.0, 10.25, 11.0]),
            _felt(2.0, [0.25, 0.75], 0.5, 3.0),
        ),
        Case("no_token", _times(10.0, []), {"raised": "ValueError"}),
    ),
    mistakes=(
        Mistake(
            "arrival_forgotten", (("ttft = token_times[0] - arrival", "ttft = token_times[0]"),)
        ),
        Mistake("tpot_over_all", (("/ len(itl)", "/ len(token_times)"),)),
        Mistake("tpot_with_ttft", (("(e2e - ttft) / len(itl)", "e2e / len(token_times)"),)),
        Mistake(
            "ttft_among_itl",
            (("pairwise(token_times)", "pairwise([arrival, *token_times])"),),
        ),
        Mistake(
            "e2e_from_first_token",
            (("token_times[-1] - arrival", "token_times[-1] - token_times[0]"),),
        ),
        Mistake("one_token_divides_by_zero", ((" if itl else None", ""),)),
    ),
)

# ---------------------------------------------------------------- 01.5 token_forwards


def _count(prompt, output, use_cache):
    return lambda part: part.token_forwards(prompt, output, use_cache)


FORWARDS = Exercise(
    id="01.5",
    module="labkit.measure.work",
    symbol="token_forwards",
    core=False,
    minutes=10,
    difficulty=1,
    cases=(
        Case("one_output", _count(4, 1, False), 4),
        Case("no_cache", _count(4, 3, False), 4 + 5 + 6),
        Case("cache", _count(4, 3, True), 4 + 1 + 1),
        Case("nothing", _count(4, 0, True), 0),
        Case("nothing", _count(4, 0, False), 0),
        Case("long", _count(100, 200, False), 39_900),  # 200*100 + (0 + 1 + ... + 199)
    ),
    mistakes=(
        Mistake("passes_counted", (("num_prompt_tokens + done for", "1 for"),)),
        Mistake("last_fed_back", (("(num_output_tokens - 1)", "num_output_tokens"),)),
        Mistake(
            "one_token_late",
            (("range(num_output_tokens)", "range(1, num_output_tokens + 1)"),),
        ),
        Mistake("prompt_forgotten", (("num_prompt_tokens + done", "done + 1"),)),
        Mistake(
            "prompt_every_step",
            (
                (
                    "num_prompt_tokens + (num_output_tokens - 1)",
                    "num_prompt_tokens * num_output_tokens",
                ),
            ),
        ),
    ),
)

EXERCISES = (NEXT_TOKEN, STEP, PUSH, LATENCY, FORWARDS)
