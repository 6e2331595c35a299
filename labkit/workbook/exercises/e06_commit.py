"""Notebook 06, the one place where requests advance: `Scheduler.commit`."""

from labkit.workbook import drawings
from labkit.workbook.registry import Case, Exercise, Mistake

STEPS, TABLES = "tokens of each step", "blocks held"
EVENTS = "events: request, token, reason, time"


def _draw(expected, found):
    if expected[STEPS] != found.get(STEPS):
        return drawings.schedule(expected[STEPS], found.get(STEPS))
    if expected[TABLES] != found.get(TABLES):
        return drawings.block_tables(expected[TABLES], found.get(TABLES))
    return drawings.rows(expected["events"], found.get("events"), EVENTS)


def _scene(script, requests, **options):
    def observe(part):
        from labkit.workbook import fakes_continuous

        return fakes_continuous.scene(part, script, requests, options)

    return observe


def _books_and_pace(part):
    from labkit.workbook import fakes_continuous

    return fakes_continuous.books_and_pace(part)


def _left(events, steps, computed, output, blocks, charged, *, found=0, waiting=()):
    """Events are (request, token, reason, time). Blocks are shared by nobody here."""
    return {
        "events": [list(event) for event in events],
        STEPS: list(steps),
        "tokens computed": computed,
        "output": output,
        TABLES: blocks,
        "blocks in use": len({block for table in blocks.values() for block in table}),
        "blocks that can be found": found,
        "unfinished": list(computed),
        "waiting": list(waiting),
        "charged for output": [[name, 1] for name in charged],
    }


def _case(name, observe, expected):
    return Case(name, observe, expected, draw=_draw)


COMMIT = Exercise(
    id="06.2",
    module="labkit.engine.scheduler",
    symbol="Scheduler.commit",
    core=True,
    minutes=40,
    difficulty=3,
    cases=(
        _case(
            "one_token",
            _scene(1, [("a", 3, 4)]),
            _left([("a", 1000, None, 1.0)], [{"a": 3}], {"a": 3}, {"a": [1000]}, {"a": [0]}, "a"),
        ),
        _case(
            "two_steps",
            _scene(2, [("a", 3, 4)]),
            _left(
                [("a", 1000, None, 1.0), ("a", 1001, None, 2.0)],
                [{"a": 3}, {"a": 1}],
                {"a": 4},
                {"a": [1000, 1001]},
                {"a": [0]},
                "aa",
            ),
        ),
        _case(
            "chunks",
            _scene(2, [("a", 11, 4)]),
            _left(
                [("a", 1000, None, 2.0)],
                [{"a": 8}, {"a": 3}],
                {"a": 11},
                {"a": [1000]},
                {"a": [0, 1, 2]},
                "a",
            ),
        ),
        _case(
            "rows",
            _scene(2, [("a", 2, 4), ("b", 9, 4), ("c", 2, 4)]),
            _left(
                [
                    ("a", 1000, None, 1.0),
                    ("a", 1001, None, 2.0),
                    ("b", 2000, None, 2.0),
                    ("c", 3000, None, 2.0),
                ],
                [{"a": 2, "b": 6}, {"a": 1, "b": 3, "c": 2}],
                {"a": 3, "b": 9, "c": 2},
                {"a": [1000, 1001], "b": [2000], "c": [3000]},
                {"a": [0], "b": [1, 2, 3], "c": [4]},
                "aabc",
            ),
        ),
        _case(
            "chunk_before_a_token",
            _scene("chunk_first", [("a", 2, 4), ("b", 9, 4)]),
            _left(
                [("a", 1000, None, 1.0)],
                [{"b": 6, "a": 2}],
                {"a": 2, "b": 6},
                {"a": [1000], "b": []},
                {"a": [0], "b": [1, 2]},
                "a",
            ),
        ),
        _case(
            "finished",
            _scene(1, [("a", 3, 1), ("b", 3, 4)]),
            _left(
                [("a", 1000, "length", 1.0), ("b", 2000, None, 1.0)],
                [{"a": 3, "b": 3}],
                {"b": 3},
                {"a": [1000], "b": [2000]},
                {"a": [], "b": [1]},
                "ab",
            ),
        ),
        _case(
            "aborted_meanwhile",
            _scene("abort_meanwhile", [("a", 2, 4), ("b", 3, 4)]),
            _left(
                [("b", 2000, None, 1.0), ("b", 2001, None, 2.0)],
                [{"a": 2, "b": 3}, {"b": 1}],
                {"b": 4},
                {"a": [], "b": [2000, 2001]},
                {"a": [], "b": [1]},
                "bb",
            ),
        ),
        _case(
            "aborted_full_block",
            _scene("abort_meanwhile", [("a", 4, 4), ("b", 2, 4)], prefix_caching=True),
            _left([("b", 2000, None, 1.0), ("b", 2001, None, 2.0)], [{"a": 4, "b": 2}, {"b": 1}],
                  {"b": 3}, {"a": [], "b": [2000, 2001]}, {"a": [], "b": [1]}, "bb"),
        ),
        _case(
            "same_id_again",
            _scene("abort_and_come_again", [("a", 2, 4), ("b", 3, 4)]),
            _left([("b", 2000, None, 1.0)], [{"a": 2, "b": 3}], {"b": 3, "a": 0},
                  {"a": [], "b": [2000]}, {"a": [], "b": [1]}, "b", waiting=["a"]),
        ),
        _case(
            "aborted_chunk",
            _scene("abort_a_chunk", [("b", 3, 4), ("a", 9, 4)]),
            _left([("b", 1000, None, 1.0)], [{"a": 5, "b": 3}], {"b": 3}, {"a": [], "b": [1000]},
                  {"a": [], "b": [0]}, "b"),
        ),
        _case(
            "no_token",
            _scene("no_token", [("a", 2, 4), ("b", 3, 4)]),
            _left([("a", None, "error", 1.0), ("b", 2000, None, 1.0)], [{"a": 2, "b": 3}], {"b": 3},
                  {"a": [], "b": [2000]}, {"a": [], "b": [1]}, ""),
        ),
        _case(
            "deadline",
            _scene(2, [("a", 2, 4), ("b", 20, 4, {"deadline": 0.5})]),
            _left([("a", 1000, None, 1.0), ("b", None, "deadline", 2.0), ("a", 1001, None, 2.0)],
                  [{"a": 2, "b": 6}, {"a": 1}], {"a": 3}, {"a": [1000, 1001], "b": []},
                  {"a": [0], "b": []}, "aa"),
        ),
        _case(
            "deadline_alone",
            _scene(2, [("b", 20, 4, {"deadline": 0.5})]),
            _left([("b", None, "deadline", 2.0)], [{"b": 8}, {}], {}, {"b": []}, {"b": []}, ""),
        ),
        _case(
            "prefix_cache",
            _scene(1, [("a", 8, 4)], prefix_caching=True),
            _left([("a", 1000, None, 1.0)], [{"a": 8}], {"a": 8}, {"a": [1000]}, {"a": [0, 1]}, "a",
                  found=2),
        ),
        _case(
            "copies_wait",
            _scene(1, [("a", 9, 4), ("b", 9, 4, {"copy_of": "a"})]),
            _left([], [{"a": 8}], {"a": 8, "b": 0}, {"a": [], "b": []}, {"a": [0, 1], "b": []}, ""),
        ),
        _case(
            "copies_start",
            _scene(1, [("a", 8, 4), ("b", 8, 4, {"copy_of": "a"})]),
            _left([("a", 1000, None, 1.0)], [{"a": 8}], {"a": 8, "b": 0}, {"a": [1000], "b": []},
                  {"a": [0, 1], "b": []}, "a", waiting=["b"]),
        ),
        Case(
            "books_and_pace",
            _books_and_pace,
            {
                "steps that the pace has seen": [0, 1],
                "tokens and seconds of the last": [5, 2.0],
                "blocks free on the host": 4,
            },
        ),
    ),
    mistakes=(
        Mistake(
            "rows_mixed_up",
            (("next(results) if chunk.samples else None", "next(results, None)"),),
        ),
        Mistake(
            "abort_shifts_rows",
            (
                (
                    "        request, result = chunk.request, "
                    "next(results) if chunk.samples else None\n",
                    "        request = chunk.request\n",
                ),
                (
                    "            continue\n        self.books",
                    "            continue\n"
                    "        result = next(results) if chunk.samples else None\n"
                    "        self.books",
                ),
            ),
        ),
        Mistake(
            "aborted_takes_a_result",
            (
                ("next(results) if chunk.samples else None", "None"),
                (
                    "            continue\n        self.books",
                    "            next(results, None)\n            continue\n"
                    "        result = next(results) if chunk.samples else None\n"
                    "        self.books",
                ),
            ),
        ),
        Mistake(
            "aborted_gets_a_token",
            (("if request.state is State.FINISHED:", "if False:"),),
        ),
        Mistake(
            "zipped",
            (
                (
                    "for chunk in plan.chunks.values():",
                    "for chunk, _ in zip(plan.chunks.values(), [*sampled]):",
                ),
                ("next(results) if chunk.samples else None", "next(results)"),
            ),
        ),
        Mistake(
            "new_token_counted",
            (
                (
                    "events.append(advance(request, result, now))",
                    "events.append(advance(request, result, now))\n"
                    "        request.num_computed_tokens = request.num_tokens",
                ),
            ),
        ),
        Mistake("blocks_leak", (("            self._forget(request)", "            pass"),)),
        Mistake(
            "only_unlisted",
            (
                (
                    "            self._forget(request)",
                    "            del self.running[request.request_id]\n"
                    "            del self.known[request.request_id]",
                ),
            ),
        ),
        Mistake(
            "not_findable",
            (
                (
                    "self.books.note_computed(request, chunk)",
                    "request.num_computed_tokens = chunk.end",
                ),
            ),
        ),
        Mistake("copies_forgotten", (("self._start_copies(request)", "pass"),)),
        Mistake("failed_not_told", (("last_events(plan.failed, now)", "[]"),)),
        Mistake(
            "charged_for_chunks",
            (("charge(request, 0, 1)", "charge(request, 0, chunk.num_tokens)"),),
        ),
        Mistake("never_charged", (("        self.policy.charge(request, 0, 1)\n", ""),)),
    ),
)

EXERCISES = (COMMIT,)
