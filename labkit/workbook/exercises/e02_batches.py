"""Notebook 02, the batch: `BatchEngine.step`."""

from labkit.workbook import drawings
from labkit.workbook.registry import Case, Exercise, Mistake

STEPS = 8  # more than any case needs, so that an engine that never stops is seen to go on


def _run(*requests, batch_size=2, eos=(), abort=None, reading=0.0, bias=None):
    """Steps an engine to its end and writes down what came out.

    `requests` are (id, script, max_tokens); `abort` is (after how many steps, id); a look at the
    clock takes `reading` seconds. `bias` is (id, the token that its rules have it say).
    """

    def observe(part):
        from labkit.engine.request import Request
        from labkit.model.sampling_params import SamplingParams
        from labkit.workbook.fakes_batching import scripted_engine

        scripts = {name: script for name, script, _ in requests}
        engine = scripted_engine(part, scripts, batch_size, eos, reading)
        held = [Request(name, [1], max_tokens=most) for name, _, most in requests]
        for request in held:
            if bias and bias[0] == request.request_id:
                request.sampling = SamplingParams(temperature=0.0, logit_bias={bias[1]: 50.0},
                                                  max_tokens=request.max_tokens)
            engine.add(request)
        events, batches = [], []
        while len(events) < STEPS and (engine.has_unfinished() or not events):
            if abort and abort[0] == len(events):
                engine.abort(abort[1])
            found = engine.step()
            if not isinstance(found, list):
                found = [f"a {type(found).__name__}, not a list"]
            events.append([_plain(event) for event in found])
            batches.append([f"{r.request_id} {r.state}" for r in engine.batch])
        return {
            "events of each step": events,
            "rows asked for in each pass": engine.passes,
            "batch after each step": batches,
            "memory given back by": engine.freed,
            "output_token_ids": {r.request_id: r.output_token_ids for r in held},
        }

    return observe


def _plain(event):
    if isinstance(event, str):
        return event
    return [event.request_id, event.token_id, event.finish_reason, event.time]


def _outcome(events, passes, batches, freed, outputs):
    return {
        "events of each step": events,
        "rows asked for in each pass": passes,
        "batch after each step": batches,
        "memory given back by": freed,
        "output_token_ids": outputs,
    }


def _draw_steps(expected, found):
    """Which request got which token in which step; else who was asked for, or the batch."""
    told = []
    for value in (expected, found):
        steps = value["events of each step"]
        told.append([{name: token for name, token, *_ in events} for events in steps])
    passes, batch = "rows asked for in each pass", "batch after each step"
    if told[0] == told[1] and expected[passes] == found[passes]:
        return drawings.rows(expected[batch], found[batch], batch)
    if told[0] == told[1]:
        told = [[dict.fromkeys(ids, 1) for ids in side[passes]] for side in (expected, found)]
    return drawings.schedule(*told)


def _case(name, observe, *outcome):
    return Case(name, observe, _outcome(*outcome), _draw_steps)


TAKES_THE_NEXT = """\
    if not self.batch:
        self.batch = self.next_batch()
        for request in self.batch:
            request.state = State.RUNNING
    running = [r for r in self.batch if r.state is not State.FINISHED]"""
FILLS_UP = """\
    self.batch = [r for r in self.batch if r.state is not State.FINISHED]
    while self.line and len(self.batch) < self.batch_size:
        self.batch.append(self.line.popleft())
        self.batch[-1].block_table = [len(self.batch) - 1]
        self.batch[-1].state = State.RUNNING
    running = list(self.batch)"""
RESULTS = """\
        results = sample(self.next_logits(running), running)
        now = self.clock()
        events = [advance(r, result, now) for r, result in zip(running, results, strict=True)]"""
ONE_BY_ONE = """\
        for r in running:
            (result,) = sample(self.next_logits([r]), [r])
            events.append(advance(r, result, self.clock()))"""
LEAVE = "    self.leave([r for r in running if r.state is State.FINISHED])"

STEP = Exercise(
    id="02.3",
    module="labkit.engine.batches",
    symbol="BatchEngine.step",
    core=True,
    minutes=30,
    difficulty=2,
    cases=(
        _case("nobody_in_line", _run(), [[]], [], [[]], [], {}),
        _case(
            "one_request",
            _run(("a", [3, 9], 2)),
            [[["a", 3, None, 1.0]], [["a", 9, "length", 2.0]]],
            [["a"], ["a"]],
            [["a running"], []],
            ["a"],
            {"a": [3, 9]},
        ),
        _case(
            "two_of_equal_length",
            _run(("a", [3], 1), ("b", [5], 1)),
            [[["a", 3, "length", 1.0], ["b", 5, "length", 1.0]]],
            [["a", "b"]],
            [[]],
            ["a", "b"],
            {"a": [3], "b": [5]},
        ),
        _case(
            "the_first_ends_early",
            _run(("a", [3], 1), ("b", [5, 6], 2)),
            [[["a", 3, "length", 1.0], ["b", 5, None, 1.0]], [["b", 6, "length", 2.0]]],
            [["a", "b"], ["b"]],
            [["a finished", "b running"], []],
            ["a", "b"],
            {"a": [3], "b": [5, 6]},
        ),
        _case(
            "end_of_sequence",
            _run(("a", [3, 0, 4], 3), ("b", [5, 6, 7], 3), eos={0}),
            [
                [["a", 3, None, 1.0], ["b", 5, None, 1.0]],
                [["a", 0, "stop", 2.0], ["b", 6, None, 2.0]],
                [["b", 7, "length", 3.0]],
            ],
            [["a", "b"], ["a", "b"], ["b"]],
            [["a running", "b running"], ["a finished", "b running"], []],
            ["a", "b"],
            {"a": [3, 0], "b": [5, 6, 7]},
        ),
        _case(
            "nobody_takes_the_place",
            _run(("a", [3], 1), ("b", [5, 6, 7], 3), ("c", [8], 1)),
            [
                [["a", 3, "length", 1.0], ["b", 5, None, 1.0]],
                [["b", 6, None, 2.0]],
                [["b", 7, "length", 3.0]],
                [["c", 8, "length", 4.0]],
            ],
            [["a", "b"], ["b"], ["b"], ["c"]],
            [["a finished", "b running"], ["a finished", "b running"], [], []],
            ["a", "b", "c"],
            {"a": [3], "b": [5, 6, 7], "c": [8]},
        ),
        _case(
            "one_is_cancelled",
            _run(("a", [3, 4, 9], 3), ("b", [5, 6], 2), abort=(1, "a")),
            [[["a", 3, None, 1.0], ["b", 5, None, 1.0]], [["b", 6, "length", 2.0]]],
            [["a", "b"], ["b"]],
            [["a running", "b running"], []],
            ["a", "b"],
            {"a": [3], "b": [5, 6]},
        ),
        _case(
            "one_bad_row",  # logits that are no numbers: this request fails, its neighbour lives
            _run(("a", [-1], 2), ("b", [5, 6], 2)),
            [[["a", None, "error", 1.0], ["b", 5, None, 1.0]], [["b", 6, "length", 2.0]]],
            [["a", "b"], ["b"]],
            [["a finished", "b running"], []],
            ["a", "b"],
            {"a": [], "b": [5, 6]},
        ),
        _case(
            "rules_of_its_own",
            _run(("a", [3], 1), ("b", [5, 6], 2), bias=("b", 4)),
            [[["a", 3, "length", 1.0], ["b", 4, None, 1.0]], [["b", 4, "length", 2.0]]],
            [["a", "b"], ["b"]],
            [["a finished", "b running"], []],
            ["a", "b"],
            {"a": [3], "b": [4, 4]},
        ),
        _case(
            "one_look_at_the_clock",
            _run(("a", [3], 1), ("b", [5], 1), reading=0.25),
            [[["a", 3, "length", 1.0], ["b", 5, "length", 1.0]]],
            [["a", "b"]],
            [[]],
            ["a", "b"],
            {"a": [3], "b": [5]},
        ),
    ),
    mistakes=(
        Mistake(
            "rows_mixed_up", (("zip(running, results, strict=True)", "zip(self.batch, results)"),)
        ),
        Mistake(
            "finished_sampled_on",
            (("[r for r in self.batch if r.state is not State.FINISHED]", "list(self.batch)"),),
        ),
        Mistake(
            "ends_with_its_first",
            (
                (
                    LEAVE,
                    LEAVE + "\n    if any(r.state is State.FINISHED for r in running):\n"
                    "        self.batch = []",
                ),
            ),
        ),
        Mistake("batch_taken_each_step", (("if not self.batch:", "if self.line:"),)),
        Mistake("place_taken", ((TAKES_THE_NEXT, FILLS_UP),)),
        Mistake("one_by_one", ((RESULTS, ONE_BY_ONE),)),
        Mistake(
            "clock_too_early",
            (
                ("        results =", "        now = self.clock()\n        results ="),
                ("        now = self.clock()\n        events", "        events"),
            ),
        ),
        Mistake("nobody_leaves", ((LEAVE, "    pass"),)),
        Mistake(
            "bad_row_ignored",
            (
                (
                    "[advance(r, result, now) for r, result in zip(running, results, strict=True)]",
                    "[advance(r, result, now) for r, result in zip(running, results) "
                    "if not result.error]",
                ),
            ),
        ),
    ),
)


EXERCISES = (STEP,)
