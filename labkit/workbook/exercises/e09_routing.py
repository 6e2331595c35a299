"""Notebook 09, who gets the request: `PrefixAware.choose` and `Session.choose`."""

from labkit.workbook import drawings
from labkit.workbook.registry import Case, Exercise, Mistake


def _draw(expected, found):
    return drawings.lists(expected, found, "who got which request", "replica")


def _went(**replicas):
    return {name: names.split() for name, names in replicas.items()}


def _by_prefix(*actions, count=3, most_ahead=20):
    def observe(part):
        from labkit.workbook.fakes_fleet import routed

        router = part.PrefixAware(most_ahead=most_ahead)
        return routed(part, router, actions, [part.Replica(f"r{i}") for i in range(count)])

    return observe


# ("sends", request, tokens, prompt): each letter of a prompt is a block of it.
WARM = ("sends", "w", 10, "AB"), ("ends", "w")  # r0 has it
PREFIX = Exercise(
    id="09.3",
    module="labkit.fleet.routing",
    symbol="PrefixAware.choose",
    core=False,
    minutes=25,
    difficulty=2,
    cases=(
        Case("warm", _by_prefix(*WARM, ("sends", "x", 10, "ABC")),
             _went(r0="w x", r1="", r2=""), _draw),
        Case("cold", _by_prefix(*WARM, ("sends", "x", 10, "Z"), ("sends", "y", 10, "Y")),
             _went(r0="w", r1="x", r2="y"), _draw),
        Case(
            "longest",
            _by_prefix(("sends", "p", 10, "A"), ("sends", "q", 30, "Z"), ("lost", "r0"),
                       ("lost", "r1"), ("sends", "s", 10, "ABC"), ("back", "r0"), ("back", "r1"),
                       ("sends", "x", 10, "ABD")),
            _went(r0="p", r1="q", r2="s x"), _draw,
        ),
        Case("below_bound", _by_prefix(*WARM, ("sends", "a", 10, "AB"), ("sends", "b", 8, "AB"),
             ("sends", "x", 5, "AB")), _went(r0="w a b x", r1="", r2=""), _draw),
        # x is the fifth with this beginning: r0 would be 40 tokens ahead of the idle ones
        Case(
            "crowd",
            _by_prefix(*WARM, ("sends", "a", 10, "AB"), ("sends", "b", 10, "AB"),
                       ("sends", "c", 10, "AB"), ("sends", "d", 10, "AB")),
            _went(r0="w a b c", r1="d", r2=""), _draw,
        ),
        Case("just_ahead", _by_prefix(*WARM, ("sends", "a", 20, "AB"), ("sends", "x", 5, "AB")),
             _went(r0="w a x", r1="", r2=""), _draw),
        Case("one_more", _by_prefix(*WARM, ("sends", "a", 21, "AB"), ("sends", "x", 5, "AB")),
             _went(r0="w a", r1="x", r2=""), _draw),
        Case("far_ahead", _by_prefix(*WARM, ("sends", "a", 60, "AB"), ("sends", "x", 5, "AB")),
             _went(r0="w a", r1="x", r2=""), _draw),
        Case("all_busy", _by_prefix(("sends", "w", 25, "AB"), ("sends", "o", 10, "Z"),
             ("sends", "p", 10, "Y"), ("sends", "x", 5, "AB")),
             _went(r0="w x", r1="o", r2="p"), _draw),
        Case(
            "small_bound",
            _by_prefix(*WARM, ("sends", "a", 1, "AB"), ("sends", "b", 1, "AB"),
                       ("sends", "c", 1, "AB"), most_ahead=1),
            _went(r0="w a b", r1="c", r2=""), _draw,
        ),
        Case(
            "copies",
            _by_prefix(*WARM, ("lost", "r0"), ("sends", "v", 10, "AB"), ("back", "r0"),
                       ("sends", "a", 5, "AB"), ("sends", "b", 5, "AB"), ("ends", "v"),
                       ("sends", "c", 1, "AB")),
            _went(r0="w a b", r1="v c", r2=""), _draw,
        ),
        Case(
            "copies_by_tokens",
            _by_prefix(*WARM, ("lost", "r0"), ("sends", "v", 4, "AB"), ("back", "r0"),
                       ("sends", "a", 15, "AB"), ("sends", "b", 4, "AB"), ("sends", "c", 4, "AB"),
                       ("sends", "x", 1, "AB")),
            _went(r0="w a", r1="v b c x", r2=""), _draw,
        ),
        Case(
            "second_longest",
            _by_prefix(("sends", "w", 10, "ABC"), ("ends", "w"), ("lost", "r0"),
                       ("sends", "v", 10, "A"), ("sends", "x", 5, "ABD")),
            _went(r0="w", r1="v x", r2=""), _draw,
        ),
        Case(
            "crowd_of_the_longest",
            _by_prefix(*WARM, ("sends", "a", 30, "AB"), ("lost", "r0"), ("sends", "v", 5, "A"),
                       ("back", "r0"), ("sends", "x", 5, "AB")),
            _went(r0="w a", r1="v", r2="x"), _draw,
        ),
        Case("lost", _by_prefix(*WARM, ("lost", "r0"), ("sends", "x", 10, "AB")),
             _went(r0="w", r1="x", r2=""), _draw),
        # r2 is idle because it is lost: r0 is 25 tokens ahead of it, and 15 of r1
        Case(
            "idle_but_lost",
            _by_prefix(("sends", "w", 25, "AB"), ("sends", "o", 10, "Z"), ("lost", "r2"),
                       ("sends", "x", 5, "AB")),
            _went(r0="w x", r1="o", r2=""), _draw,
        ),
        Case("nobody", _by_prefix(*WARM, ("lost", "r0"), ("sends", "x", 10, "AB"), count=1),
             _went(r0="w", nowhere="x"), _draw),
        Case("no_hashes", _by_prefix(*WARM, ("sends", "x", 10, ""), ("sends", "y", 10, "")),
             _went(r0="w", r1="x", r2="y"), _draw),
    ),
    mistakes=(
        Mistake("herd", (("least if ahead > self.most_ahead else index", "index"),)),
        Mistake("requests_counted", (
            ("replicas[index].num_tokens - replicas[least].num_tokens",
             "replicas[index].num_requests - replicas[least].num_requests"),
        )),
        Mistake("lost_is_warm", (("{r.name for r in replicas if r.healthy}",
                                  "{r.name for r in replicas}"),)),
        Mistake("lost_is_idle", (
            ("replicas[least].num_tokens", "min(r.num_tokens for r in replicas)"),
        )),
        Mistake("first_copy", (("min(having, key=lambda i: replicas[i].load)", "having[0]"),)),
        Mistake("cold_to_first", (
            ("    if not names:\n        return least",
             "    if not names:\n"
             "        return next(i for i, r in enumerate(replicas) if r.healthy)"),
        )),
        Mistake("never_warm", (("least if ahead > self.most_ahead else index", "least"),)),
        Mistake("crowd_too_early", (("ahead > self.most_ahead", "ahead > 0"),)),
        Mistake("at_the_bound", (("ahead > self.most_ahead", "ahead >= self.most_ahead"),)),
    ),
)  # fmt: skip


def _by_session(*actions, count=4, most=None, key=None):
    def observe(part):
        from labkit.workbook.fakes_fleet import routed

        router = part.Session(key=key) if key else part.Session()
        before = part.MOST_KEYS
        part.MOST_KEYS = most or before
        try:
            went = routed(part, router, actions, [part.Replica(f"r{i}") for i in range(count)])
        finally:
            part.MOST_KEYS = before
        return went | ({"remembered": list(router.found)} if most else {})

    return observe


def _turn(number, *sessions):
    """A request of each session; named after it and its turn."""
    return [("sends", f"{session}{number}", 5, session) for session in sessions]


# The best two of r0 to r3, by score: ant r2 r1, bee r1 r0, cow r0 r2, dog r0 r3, koi r3 r0. With
# r4 it is the best of ibis and lynx, which are r1's before.
SOME = "ant", "bee", "cow", "koi"
SESSION = Exercise(
    id="09.5",
    module="labkit.fleet.routing",
    symbol="Session.choose",
    core=False,
    minutes=25,
    difficulty=2,
    cases=(
        Case("stays", _by_session(*_turn(1, *SOME), *_turn(2, *SOME)),
             _went(r0="cow1 cow2", r1="bee1 bee2", r2="ant1 ant2", r3="koi1 koi2"), _draw),
        Case("busy", _by_session(*_turn(1, "ant"), *_turn(2, "ant"), *_turn(3, "ant")),
             _went(r0="", r1="", r2="ant1 ant2 ant3", r3=""), _draw),
        Case(
            "lost",
            _by_session(*_turn(1, *SOME), ("lost", "r2"), *_turn(2, *SOME)),
            _went(r0="cow1 cow2", r1="bee1 ant2 bee2", r2="ant1", r3="koi1 koi2"), _draw,
        ),
        Case(
            "spread",
            _by_session(("lost", "r0"), *_turn(1, "cow", "dog"), *_turn(2, "cow", "dog")),
            _went(r0="", r1="", r2="cow1 cow2", r3="dog1 dog2"), _draw,
        ),
        Case(
            "comes_back",
            _by_session(("lost", "r2"), *_turn(1, "ant", "bee"), ("back", "r2"),
                        *_turn(2, "ant", "bee")),
            _went(r0="", r1="ant1 bee1 bee2", r2="ant2", r3=""), _draw,
        ),
        Case(
            "joins",
            _by_session(*_turn(1, *SOME, "ibis", "lynx"), ("joins", "r4"),
                        *_turn(2, *SOME, "ibis", "lynx")),
            _went(r0="cow1 cow2", r1="bee1 ibis1 lynx1 bee2", r2="ant1 ant2", r3="koi1 koi2",
                  r4="ibis2 lynx2"), _draw,
        ),
        Case("no_session", _by_session(*[("sends", f"n{i}", 5, "") for i in range(5)]),
             _went(r0="n0 n4", r1="n1", r2="n2", r3="n3"), _draw),
        Case(
            "no_session",
            _by_session(("sends", "n0", 50, ""), ("sends", "n1", 5, ""), ("sends", "n2", 5, ""),
                        count=2),
            _went(r0="n0", r1="n1 n2"), _draw,
        ),
        Case(
            "own_key",
            _by_session(*_turn(1, *SOME), key=lambda request: request.tenant and "ant"),
            _went(r0="", r1="", r2="ant1 bee1 cow1 koi1", r3=""), _draw,
        ),
        Case("nobody", _by_session(("lost", "r0"), *_turn(1, "ant"), count=1),
             _went(r0="", nowhere="ant1"), _draw),
        Case("no_replicas", _by_session(*_turn(1, "ant"), count=0), _went(nowhere="ant1"), _draw),
        Case(
            "many",
            _by_session(*_turn(1, "ant", "bee", "cow"), most=2),
            _went(r0="cow1", r1="bee1", r2="ant1", r3="", remembered="bee cow"), _draw,
        ),
    ),
    mistakes=(
        Mistake("modulo", (
            ("    if index is not None and replicas[index].healthy:\n        return index\n", ""),
            ("return self._best(key, healthy)",
             "return healthy[number_of(key) % len(healthy)]"),
        )),
        Mistake("modulo_of_all", (
            ("self._best(key, range(len(replicas)))", "number_of(key) % len(replicas)"),
        )),
        Mistake("lost_chosen", (
            ("index is not None and replicas[index].healthy", "index is not None"),
        )),
        Mistake("never_back", (
            ("return self._best(key, healthy)",
             "self.found[key] = self._best(key, healthy)\n    return self.found[key]"),
        )),
        Mistake("scattered", (
            ("return self._best(key, healthy)", "return self.others.choose(request, replicas)"),
        )),
        Mistake("wrong_place", (
            ("self._best(key, healthy)", "self._best(key, range(len(healthy)))"),
        )),
        Mistake("newcomer_ignored", (("len(self.names) != len(replicas)", "not self.names"),)),
        Mistake("none_is_a_session", (("if not key:", "if key is None:"),)),
        Mistake("never_forgets", (("len(self.found) > MOST_KEYS", "False"),)),
        Mistake("forgets_the_newest", (("popitem(last=False)", "popitem()"),)),
    ),
)  # fmt: skip

EXERCISES = (PREFIX, SESSION)
