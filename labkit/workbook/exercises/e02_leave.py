"""Notebook 02, the end of a batch: `BatchEngine.leave`."""

from labkit.workbook import drawings
from labkit.workbook.registry import Case, Exercise, Mistake


def _leave(batch, *calls):
    """Calls `leave` for requests of one batch and writes down who holds memory after each call.

    `batch` are ids; each of `calls` lists who has ended just before it.
    """

    def observe(part):
        from labkit.engine.request import Request, State
        from labkit.workbook.fakes_batching import scripted_engine

        engine = scripted_engine(part, {}, len(batch) or 1)
        held = {name: Request(name, [1]) for name in [*batch, "next in line"]}
        for request in held.values():
            engine.add(request)
        engine.batch = engine.next_batch() if batch else []
        for request in engine.batch:
            request.state = State.RUNNING
        tables, batches = [], []
        for ended in calls:
            for name in ended:
                held[name].finish({"b": "stop", "c": "abort"}.get(name, "length"))
            engine.leave([held[name] for name in ended])
            tables.append({name: list(held[name].block_table) for name in batch})
            batches.append([request.request_id for request in engine.batch])
        return {
            "rows of memory held after each call": tables,
            "batch after each call": batches,
            "memory given back by": engine.freed,
            "in line": [request.request_id for request in engine.line],
        }

    return observe


def _left(tables, batches, freed, in_line=("next in line",)):
    return {
        "rows of memory held after each call": tables,
        "batch after each call": batches,
        "memory given back by": freed,
        "in line": list(in_line),
    }


def _draw_memory(expected, found):
    """Who holds which row after the first call where that differs; else what does differ."""
    held = "rows of memory held after each call"
    for wanted, mine in zip(expected[held], found[held], strict=True):
        if wanted != mine:
            return drawings.block_tables(wanted, mine)
    batch, freed = "batch after each call", "memory given back by"
    name = batch if expected[batch] != found[batch] else freed
    return drawings.rows(expected[name], found[name], name)


RELEASE = "    for request in ended:\n        self.release(request)\n"
EMPTY = "all(request.state is State.FINISHED for request in self.batch)"

LEAVING = Exercise(
    id="02.4",
    module="labkit.engine.batches",
    symbol="BatchEngine.leave",
    core=False,
    minutes=15,
    difficulty=2,
    cases=(
        Case("nobody_at_all", _leave([], []), _left([{}], [[]], []), _draw_memory),
        Case(
            "nobody_has_ended",
            _leave(["a"], []),
            _left([{"a": [0]}], [["a"]], []),
            _draw_memory,
        ),
        Case("a_batch_of_one", _leave(["a"], ["a"]), _left([{"a": []}], [[]], ["a"]), _draw_memory),
        Case(
            "all_at_once",
            _leave(["a", "b"], ["a", "b"]),
            _left([{"a": [], "b": []}], [[]], ["a", "b"]),
            _draw_memory,
        ),
        Case(
            "the_first_ends_early",
            _leave(["a", "b"], ["a"]),
            _left([{"a": [], "b": [1]}], [["a", "b"]], ["a"]),
            _draw_memory,
        ),
        Case(
            "the_last_row_ends_first",
            _leave(["a", "b"], ["b"], ["a"]),
            _left(
                [{"a": [0], "b": []}, {"a": [], "b": []}], [["a", "b"], []], ["b", "a"]
            ),
            _draw_memory,
        ),
        Case(
            "one_after_the_other",
            _leave(["a", "b", "c"], ["b"], [], ["a"], ["c"]),
            _left(
                [
                    {"a": [0], "b": [], "c": [2]},
                    {"a": [0], "b": [], "c": [2]},
                    {"a": [], "b": [], "c": [2]},
                    {"a": [], "b": [], "c": []},
                ],
                [["a", "b", "c"], ["a", "b", "c"], ["a", "b", "c"], []],
                ["b", "a", "c"],
            ),
            _draw_memory,
        ),
    ),
    mistakes=(
        Mistake(
            "freed_twice",
            (
                (
                    RELEASE,
                    "    for request in self.batch:\n"
                    "        if request.state is State.FINISHED:\n"
                    "            self.release(request)\n",
                ),
            ),
        ),
        Mistake(
            "held_to_the_end",
            (
                (RELEASE, ""),
                (
                    "        self.batch = []",
                    "        for request in self.batch:\n"
                    "            self.release(request)\n"
                    "        self.batch = []",
                ),
            ),
        ),
        Mistake("never_given_back", ((RELEASE, ""),)),
        Mistake("ends_with_its_first", (("    if all(", "    if any("),)),
        Mistake(
            "ends_with_its_last_row",
            ((EMPTY, "not self.batch or self.batch[-1].state is State.FINISHED"),),
        ),
        Mistake("ends_only_together", ((EMPTY, "len(ended) == len(self.batch)"),)),
        Mistake(
            "rows_close_up",
            (
                (
                    f"    if {EMPTY}:\n        self.batch = []",
                    "    self.batch = [r for r in self.batch if r not in ended]",
                ),
            ),
        ),
        Mistake(
            "next_batch_taken",
            (("        self.batch = []", "        self.batch = self.next_batch()"),),
        ),
    ),
)

EXERCISES = (LEAVING,)
