"""Notebook 09, many models in one memory: `Shelf.victims` and `ModelCache.acquire`."""

from labkit.workbook import drawings
from labkit.workbook.registry import Case, Exercise, Mistake


def _asked(budget, needed, *entries):
    def observe(part):
        from labkit.workbook.fakes_fleet import victims

        return victims(part, budget, entries, needed)

    return observe


def _leave(leave, stay=""):
    return {"leave": leave if leave == "None" else leave.split(), "stay": stay.split()}


def _draw_shelf(expected, found):
    return drawings.lists(expected, found, "models", "who may")


def _idle(name, num_bytes):
    return name, num_bytes, 0, "ready"


def _used(name, num_bytes):
    return name, num_bytes, 1, "ready"


# Entries stand with the longest unused first: (name, bytes, pins, state).
A, B, C = _idle("a", 3), _idle("b", 3), _idle("c", 3)
VICTIMS = Exercise(
    id="09.1",
    module="labkit.fleet.model_cache",
    symbol="Shelf.victims",
    core=False,
    minutes=15,
    difficulty=1,
    cases=(
        Case("oldest", _asked(9, 3, A, B, C), _leave("a", "b c"), _draw_shelf),
        Case("room", _asked(9, 2, A), _leave("", "a"), _draw_shelf),
        Case("just_room", _asked(9, 6, A), _leave("", "a"), _draw_shelf),
        Case("just_enough", _asked(9, 6, A, B, C), _leave("a b", "c"), _draw_shelf),
        Case("one_too_few", _asked(9, 4, A, B, C), _leave("a b", "c"), _draw_shelf),
        Case(
            "bytes", _asked(12, 10, A, _idle("large", 8)), _leave("a large"), _draw_shelf
        ),
        Case("oldest_is_large", _asked(12, 3, _idle("large", 8), A), _leave("large", "a"),
             _draw_shelf),
        Case(
            "in_use",
            _asked(9, 3, _used("chat", 3), B, C),
            _leave("b", "chat c"),
            _draw_shelf,
        ),
        # nobody waits for it any more, and it is still being loaded
        Case(
            "loading",
            _asked(9, 3, ("new", 3, 0, "loading"), B, C),
            _leave("b", "new c"),
            _draw_shelf,
        ),
        Case("waiting", _asked(9, 3, ("late", 3, 1, "waiting"), A, B), _leave("", "late a b"),
             _draw_shelf),
        Case("waiting", _asked(6, 3, ("gone", 3, 0, "waiting"), A, B), _leave("a", "gone b"),
             _draw_shelf),
        Case("leaving", _asked(9, 3, ("old", 3, 0, "leaving"), A, B), _leave("", "old a b"),
             _draw_shelf),
        Case("leaving", _asked(6, 3, ("old", 3, 0, "leaving"), A, B), _leave("a", "old b"),
             _draw_shelf),
        Case("not_enough", _asked(9, 7, _used("chat", 3), B, C), _leave("None", "chat b c"),
             _draw_shelf),
        Case("all_in_use", _asked(6, 1, _used("chat", 3), _used("code", 3)),
             _leave("None", "chat code"), _draw_shelf),
        # its measured bytes turned out to be more than the estimate
        Case("over_budget", _asked(9, 0, A, B, _used("grown", 5)), _leave("a", "b grown"),
             _draw_shelf),
    ),
    mistakes=(
        Mistake("one_leaves", (("missing -= entry.num_bytes", "missing = 0"),)),
        Mistake("newest_first", (
            ("in self.entries.values()", "in reversed(self.entries.values())"),
        )),
        Mistake("largest_first", ((
            "in self.entries.values()",
            "in sorted(self.entries.values(), key=lambda one: -one.num_bytes)",
        ),)),
        Mistake("smallest_first", ((
            "in self.entries.values()",
            "in sorted(self.entries.values(), key=lambda one: one.num_bytes)",
        ),)),
        Mistake("pinned_leaves", (("if entry.is_idle:", "if entry.state is State.READY:"),)),
        Mistake("loading_leaves", (("if entry.is_idle:", "if entry.num_pins == 0:"),)),
        Mistake("for_nothing", (("leaving if missing <= 0 else None", "leaving"),)),
        Mistake("room_is_none", (
            ("leaving if missing <= 0 else None", "leaving if leaving and missing <= 0 else None"),
        )),
        Mistake("all_idle_leave", (("if missing <= 0:\n            break", "if False:\n"
                                    "            break"),)),
        Mistake("room_ignored", (("self.num_bytes + needed - self.budget", "needed"),)),
    ),
)  # fmt: skip


def _played(*actions, budget=2, spare=0):
    def observe(part):
        from labkit.workbook.fakes_fleet import acquired

        return acquired(part, actions, budget, spare)

    return observe


def _seen(loader, shelf, pins, **callers):
    return {
        "callers": {name: states.split(",") for name, states in callers.items()},
        "loader": loader.split(", ") if loader else [], "pins": pins, "on the shelf": shelf.split(),
    }  # fmt: skip


def _draw_callers(expected, found):
    return drawings.lists(_rows(expected), _rows(found), "callers after each action, and the cache",
                          "row")


def _rows(found):
    pins = [f"{name}: {number}" for name, number in sorted(found["pins"].items())]
    return {**found["callers"], "loader": found["loader"], "pins": pins,
            "shelf": found["on the shelf"]}


# Two models of 1 byte fit, or one with a capital letter.
ACQUIRE = Exercise(
    id="09.2",
    module="labkit.fleet.model_cache",
    symbol="ModelCache.acquire",
    core=False,
    minutes=30,
    difficulty=3,
    cases=(
        Case(
            "first",
            _played(("asks", "ann", "a"), ("loaded", "a"), ("done", "ann")),
            _seen("load a", "a", {"a": 0}, ann="waits,a,done"),
            _draw_callers,
        ),
        Case(
            "again",
            _played(("asks", "ann", "a"), ("loaded", "a"), ("done", "ann"), ("asks", "bob", "a")),
            _seen("load a", "a", {"a": 1}, ann="waits,a,done,done", bob=",,,a"),
            _draw_callers,
        ),
        Case(
            "together",
            _played(("asks", "ann", "a"), ("asks", "bob", "a"), ("loaded", "a")),
            _seen("load a", "a", {"a": 2}, ann="waits,waits,a", bob=",waits,a"),
            _draw_callers,
        ),
        # B waits for room while a is loaded: the moment a is ready it could be taken away
        Case(
            "no_gap",
            _played(("asks", "ann", "a"), ("asks", "bob", "B"), ("loaded", "a"), ("done", "ann"),
                    ("loaded", "B")),
            _seen("load a, unload a, load B", "B", {"a": 0, "B": 1},
                  ann="waits,waits,a,done,done", bob=",waits,waits,waits,B"),
            _draw_callers,
        ),
        Case(
            "cancelled",
            _played(("asks", "ann", "a"), ("asks", "bob", "a"), ("cancelled", "ann"),
                    ("loaded", "a")),
            _seen("load a", "a", {"a": 1}, ann="waits,waits,left,left", bob=",waits,waits,a"),
            _draw_callers,
        ),
        # bob goes: what waits for room is told so at once, and a stays for cat
        Case(
            "not_wanted",
            _played(("asks", "ann", "a"), ("loaded", "a"), ("asks", "bob", "B"),
                    ("cancelled", "bob"), ("done", "ann"), ("asks", "cat", "a")),
            _seen("load a", "a", {"a": 1, "B": 0}, ann="waits,a,a,a,done,done",
                  bob=",,waits,left,left,left", cat=",,,,,a"),
            _draw_callers,
        ),
        Case(
            "too_large",
            _played(("asks", "ann", "B"), budget=1),
            _seen("", "", {"B": 0}, ann="TooLarge"),
            _draw_callers,
        ),
        # nobody uses a any more, so B may take its place
        Case(
            "pin_back",
            _played(("asks", "ann", "a"), ("cancelled", "ann"), ("loaded", "a"),
                    ("asks", "bob", "B"), ("loaded", "B")),
            _seen("load a, unload a, load B", "B", {"a": 0, "B": 1},
                  ann="waits,left,left,left,left", bob=",,,waits,B"),
            _draw_callers,
        ),
        Case(
            "failed",
            _played(("asks", "ann", "a"), ("asks", "bob", "a"), ("fails", "a"),
                    ("asks", "cat", "a"), ("loaded", "a")),
            _seen("load a, load a", "a", {"a": 1},
                  ann="waits,waits,LoadFailed,LoadFailed,LoadFailed",
                  bob=",waits,LoadFailed,LoadFailed,LoadFailed", cat=",,,waits,a"),
            _draw_callers,
        ),
        # a was asked for again, so b has been unused for longest when c comes
        Case(
            "used_again",
            _played(("asks", "ann", "a"), ("loaded", "a"), ("done", "ann"), ("asks", "bob", "b"),
                    ("loaded", "b"), ("done", "bob"), ("asks", "ann", "a"), ("done", "ann"),
                    ("asks", "cat", "c"), ("loaded", "c")),
            _seen("load a, load b, unload b, load c", "a c", {"a": 0, "b": 0, "c": 1},
                  ann=",,,,,,a,done,done,done", bob=",,,waits,b,done,done,done,done,done",
                  cat=",,,,,,,,waits,c"),
            _draw_callers,
        ),
        Case(
            "stays_in_use",
            _played(("asks", "ann", "a"), ("loaded", "a"), ("asks", "bob", "b"), ("loaded", "b"),
                    ("done", "bob"), ("asks", "cat", "c"), ("loaded", "c")),
            _seen("load a, load b, unload b, load c", "a c", {"a": 1, "b": 0, "c": 1},
                  ann="waits,a,a,a,a,a,a", bob=",,waits,b,done,done,done",
                  cat=",,,,,waits,c"),
            _draw_callers,
        ),
        # there is memory to load b beside a, which is to leave when b is there
        Case(
            "leaving",
            _played(("asks", "ann", "a"), ("loaded", "a"), ("done", "ann"), ("asks", "bob", "b"),
                    ("asks", "cat", "a"), ("loaded", "b"), ("done", "bob"), ("loaded", "a"),
                    budget=1, spare=1),
            _seen("load a, load b, unload a, load a, unload b", "a", {"a": 1, "b": 0},
                  ann="waits,a,done,done,done,done,done,done", bob=",,,waits,waits,b,done,done",
                  cat=",,,,waits,waits,waits,a"),
            _draw_callers,
        ),
    ),
    mistakes=(
        Mistake("loads_twice", ((
            "entry = self.shelf.entries.get(name) or self._begin(name)",
            "entry = self.shelf.entries.get(name)\n"
            "    if entry is None or entry.state is not State.READY:\n"
            "        entry = self._begin(name)",
        ),)),
        Mistake("pinned_after", (
            ("    entry.num_pins += 1\n    try:\n        await asyncio.shield(entry.task)\n"
             "    except BaseException:\n        self.release(entry)\n        raise\n",
             "    await asyncio.shield(entry.task)\n    entry.num_pins += 1\n"),
        )),
        Mistake("ends_for_all", (("asyncio.shield(entry.task)", "entry.task"),)),
        Mistake("cancelled_keeps_pin", (("except BaseException:", "except Exception:"),)),
        Mistake("failed_keeps_pin", (
            ("except BaseException:", "except asyncio.CancelledError:"),
        )),
        Mistake("pin_never_back", (("        self.release(entry)\n", ""),)),
        Mistake("hidden_failure", (
            ("        self.release(entry)\n        raise", "        return entry"),
        )),
        Mistake("never_pinned", (
            ("    entry.num_pins += 1\n    try:\n        await asyncio.shield(entry.task)\n"
             "    except BaseException:\n        self.release(entry)\n        raise\n",
             "    await asyncio.shield(entry.task)\n"),
        )),
        Mistake("first_in_first_out", (("    self.shelf.entries.move_to_end(name)\n", ""),)),
        Mistake("not_waited", (("await asyncio.shield(entry.task)", "await asyncio.sleep(0)"),)),
    ),
)  # fmt: skip

EXERCISES = (VICTIMS, ACQUIRE)
