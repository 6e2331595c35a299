"""Notebook 10, who serves and how many: `Pools.choose` and `wanted_replicas`."""

from labkit.workbook import drawings
from labkit.workbook.registry import Case, Exercise, Mistake

URGENT, OTHER = 0, 1  # priorities


def _route(there, *requests, urgent_above=4096, lend_below=0, gold=False):
    """Sends requests of (priority, tokens), or with `gold` of (tenant, tokens), one by one.

    `there` names replicas with what they have under way, "d1:500 s1:9000/1": 500 tokens, and
    9,000 of one request. The letter is the pool; one in brackets is not healthy.
    """

    def observe(part):
        from labkit.engine.request import Request
        from labkit.fleet.routing import NoReplica

        own_rule = {"is_urgent": lambda request: request.tenant == "gold"} if gold else {}
        router = part.Pools(spill=part.Spill(urgent_above, lend_below), **own_rule)
        replicas, sent = [_replica(text) for text in there.split()], []
        for number, (kind, num_tokens) in enumerate(requests):
            ids = {"tenant": kind} if gold else {"priority": kind}
            request = Request(f"r{number}", [1] * (num_tokens - 1), max_tokens=1, **ids)
            try:
                index = router.choose(request, replicas)
            except NoReplica:
                return {"raised": "NoReplica"}
            if index is None:
                return {"sent": [*sent, {"nobody": num_tokens}]}
            router.dispatched(request, replicas[index])
            sent.append({replicas[index].name: num_tokens})
        return {"sent": sent}

    return observe


def _replica(text):
    from labkit.fleet.routing import Replica

    name, load = text.strip("()").split(":")
    num_tokens, _, num_requests = load.partition("/")
    replica = Replica(name, healthy="(" not in text, num_tokens=int(num_tokens))
    replica.num_requests = int(num_requests or int(num_tokens) // 1000)
    replica.pool = {"d": "dedicated", "s": "shared"}[name[0]]
    return replica


def _sent(*names, tokens=100):
    return {"sent": [{name: tokens} for name in names]}


def _draw_sent(expected, found):
    return drawings.schedule(expected["sent"], found["sent"], "who got how many tokens",
                             ("replica", "request"))


CHOOSE = Exercise(
    id="10.4",
    module="labkit.fleet.pools",
    symbol="Pools.choose",
    core=False,
    minutes=20,
    difficulty=2,
    cases=(
        Case(
            "at_home", _route("d1:0 s1:0", (URGENT, 100), (OTHER, 100)), _sent("d1", "s1"),
            _draw_sent,
        ),
        Case(
            "nothing_lent", _route("d1:0 s1:9000", (OTHER, 100)), _sent("s1"), _draw_sent
        ),
        Case(
            "least_loaded",
            _route("d1:150 s1:200 d2:100 s2:50", *[(URGENT, 100)] * 2, *[(OTHER, 100)] * 2),
            _sent("d2", "d1", "s2", "s2"),
            _draw_sent,
        ),
        Case("spills", _route("s2:9000 d1:4096 s1:3000", (URGENT, 100)), _sent("s1"), _draw_sent),
        Case("not_yet", _route("d1:4095 s1:0", (URGENT, 100)), _sent("d1"), _draw_sent),
        Case("both_beyond", _route("s2:9900 d1:9000 s1:5000", (URGENT, 100)), _sent("s1"),
             _draw_sent),
        Case("one_has_room", _route("d1:9000 d2:1000 s1:0", (URGENT, 100)), _sent("d2"),
             _draw_sent),
        Case("own_limit", _route("s2:9000 d1:500 s1:0", (URGENT, 100), urgent_above=500),
             _sent("s1"), _draw_sent),
        Case("no_better_there", _route("d1:5000 s1:9000", (URGENT, 100)), _sent("d1"), _draw_sent),
        Case("as_full", _route("d1:5000 s1:5000", (URGENT, 100)), _sent("d1"), _draw_sent),
        Case("as_full", _route("d1:5000/3 s1:5000/1", (URGENT, 100)), _sent("d1"), _draw_sent),
        Case(
            "one_long", _route("d1:5000/1 s1:3000/3", (URGENT, 100)), _sent("s1"), _draw_sent
        ),
        Case(
            "rush",
            _route("d1:0 s1:0", *[(URGENT, 3000)] * 5, urgent_above=4000),
            _sent("d1", "d1", "s1", "s1", "d1", tokens=3000),
            _draw_sent,
        ),
        Case(
            "lends",
            _route("d1:0 s1:2000", (OTHER, 100), (OTHER, 100), lend_below=1),
            _sent("d1", "s1"),
            _draw_sent,
        ),
        *(
            Case("lends_up_to", _route(there, (OTHER, 100), lend_below=1000), _sent(name),
                 _draw_sent)
            for there, name in (("d1:500 s1:2000", "d1"), ("d1:100 s1:500", "d1"),
                                ("d1:1000 s1:2000", "s1"), ("d1:500 s1:200", "s1"),
                                ("d1:500/1 s1:500/3", "s1"))
        ),
        Case(
            "both_idle", _route("d1:0 s1:0", (OTHER, 100), lend_below=1), _sent("s1"), _draw_sent
        ),
        Case(
            "dedicated_lost", _route("(d1:0) s1:9000", (URGENT, 100)), _sent("s1"), _draw_sent
        ),
        Case("shared_lost", _route("(s1:0) d1:9000", (OTHER, 100)), _sent("d1"), _draw_sent),
        Case("sick", _route("(d1:0) d2:300 s1:0", (URGENT, 100)), _sent("d2"), _draw_sent),
        Case("nobody", _route("(d1:0) (s1:0)", (OTHER, 100)), {"raised": "NoReplica"}),
        Case(
            "own_rule",
            _route("d1:0 s1:0", ("gold", 100), ("iron", 100), gold=True),
            _sent("d1", "s1"),
            _draw_sent,
        ),
    ),
    mistakes=(
        Mistake("never_leaves", (("return away if leaves else home", "return home"),)),
        Mistake("leaves_for_worse", ((
            "at_home >= self.spill.urgent_above and elsewhere < at_home",
            "at_home >= self.spill.urgent_above",
        ),)),
        Mistake("lends_always", ((
            "elsewhere < self.spill.lend_below and elsewhere < at_home", "elsewhere < at_home"
        ),)),
        Mistake("lends_in_vain", ((
            "elsewhere < self.spill.lend_below and elsewhere < at_home",
            "elsewhere < self.spill.lend_below",
        ),)),
        Mistake("one_over", (
            ("at_home >= self.spill.urgent_above", "at_home > self.spill.urgent_above"),
        )),
        Mistake("lost_pool_refused", (
            ("if home is None and away is None:", "if home is None:"),
        )),
        Mistake("zero_is_none", (
            ("if home is None or away is None:", "if not home or not away:"),
        )),
        Mistake("requests_counted", (
            ("replicas[home].num_tokens, replicas[away].num_tokens",
             "1000 * replicas[home].num_requests, 1000 * replicas[away].num_requests"),
        )),
        Mistake("backwards", (("urgent = self.is_urgent(request)",
                               "urgent = not self.is_urgent(request)"),)),
        Mistake("own_rule_ignored", (("self.is_urgent(request)", "request.priority < 1"),)),
    ),
)  # fmt: skip


def _wanted(*loads, **limits):
    """What is wanted for each load of (replicas, requests, share of KV blocks in use)."""

    def observe(part):
        limited = part.Limits(**limits)
        wanted = [part.wanted_replicas(part.Load(*load), limited) for load in loads]
        return {"wanted": [n if isinstance(n, int) else repr(n) for n in wanted]}

    return observe


def _followed(replicas, requests, kv, times, **limits):
    """The wanted number is done each time; `kv` is in use on so many replicas' worth of blocks."""

    def observe(part):
        limited, number, wanted = part.Limits(**limits), replicas, []
        for _ in range(times):
            number = part.wanted_replicas(part.Load(number, requests, kv / number), limited)
            wanted.append(number)
            if not (isinstance(number, int) and number > 0):
                break
        return {"wanted": wanted}

    return observe


def _numbers(*wanted):
    return {"wanted": [*wanted]}


def _draw_wanted(expected, found):
    return drawings.rows(expected["wanted"], found["wanted"], "wanted replicas")


WANTED = Exercise(
    id="10.5",
    module="labkit.fleet.scaling",
    symbol="wanted_replicas",
    core=False,
    minutes=15,
    difficulty=2,
    cases=(
        Case(
            "count",
            _wanted(*[(2, requests, 0.1) for requests in (1, 8, 9, 16, 17)]),
            _numbers(1, 1, 2, 2, 3),
            _draw_wanted,
        ),
        Case("at_least", _wanted((1, 0, 0.0)), _numbers(1), _draw_wanted),
        Case("at_least", _wanted((3, 0, 0.0), min_replicas=2), _numbers(2), _draw_wanted),
        Case("at_most", _wanted((1, 33, 0.2), (4, 1000, 0.2)), _numbers(4, 4), _draw_wanted),
        Case("half", _wanted((1, 5, 0.1), (1, 6, 0.1), requests_each=2.5), _numbers(2, 3),
             _draw_wanted),
        Case("full_memory", _wanted((1, 2, 0.95), (2, 2, 0.95)), _numbers(2, 3), _draw_wanted),
        Case("full_memory_at_most", _wanted((4, 2, 0.95)), _numbers(4), _draw_wanted),
        Case("both", _wanted((1, 30, 0.95), (2, 30, 0.7)), _numbers(4, 4), _draw_wanted),
        Case("room_enough", _wanted((1, 20, 0.95)), _numbers(3), _draw_wanted),
        Case("held", _wanted((3, 4, 0.7), (2, 4, 0.8)), _numbers(3, 2), _draw_wanted),
        Case("let_go", _wanted((3, 4, 0.3), (2, 12, 0.3), (5, 3, 0.0)), _numbers(1, 2, 1),
             _draw_wanted),
        Case("edges", _wanted((2, 4, 0.9), (2, 4, 0.4)), _numbers(2, 2), _draw_wanted),
        Case("own_limits", _wanted((2, 4, 0.75), (2, 4, 0.3), max_replicas=6, kv_high=0.7,
             kv_low=0.2), _numbers(3, 2), _draw_wanted),
        Case("own_limits", _wanted((1, 100, 0.1), max_replicas=6), _numbers(6), _draw_wanted),
        Case("too_many", _wanted((6, 4, 0.7)), _numbers(4), _draw_wanted),
        Case("settles", _followed(1, 6, 1.3, 6), _numbers(2, 2, 2, 2, 2, 2), _draw_wanted),
    ),
    mistakes=(
        Mistake("rounded_down", (("math.ceil(", "math.floor("),)),
        Mistake("average_for_sum", (
            ("load.num_requests / limits", "load.num_requests / load.num_replicas / limits"),
        )),
        Mistake("memory_ignored", (
            ("if load.kv_usage > limits.kv_high:", "if False:"),
            ("elif load.kv_usage >= limits.kv_low:", "elif False:"),
        )),
        Mistake("swings", (("elif load.kv_usage >= limits.kv_low:", "elif False:"),)),
        Mistake("queue_forgotten", (
            ("max(wanted, load.num_replicas + 1)", "load.num_replicas + 1"),
        )),
        Mistake("never_fewer", (
            ("wanted = math.ceil(load.num_requests / limits.requests_each)", "wanted = max("
             "load.num_replicas, math.ceil(load.num_requests / limits.requests_each))"),
        )),
        Mistake("beyond_max", (
            ("min(max(wanted, limits.min_replicas), limits.max_replicas)",
             "max(wanted, limits.min_replicas)"),
        )),
        Mistake("down_to_none", (
            ("min(max(wanted, limits.min_replicas), limits.max_replicas)",
             "min(wanted, limits.max_replicas)"),
        )),
    ),
)  # fmt: skip

EXERCISES = (CHOOSE, WANTED)
