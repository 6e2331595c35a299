"""Notebook 02, which batch is best: `best_batch`."""

from labkit.workbook.registry import Case, Exercise, Mistake


def _best(*runs, **limits):
    """`runs` are (batch size, seconds, [(TTFT, TPOT) of each request])."""

    def observe(part):
        from labkit.measure.metrics import Latency

        made = [
            part.BatchRun(
                size,
                seconds,
                tuple(Latency(ttft, (), tpot, ttft + 4 * (tpot or 0)) for ttft, tpot in requests),
            )
            for size, seconds, requests in runs
        ]
        found = part.best_batch(made, **limits)
        return {"best batch": found}

    return observe


def _order_kept(part):
    """Two runs, not in the order of their batch sizes."""
    made = [part.BatchRun(size, 4.0, ()) for size in (8, 4)]
    part.best_batch(made)
    return {"batch sizes of `runs` afterwards": [run.batch_size for run in made]}


def _is(size):
    return {"best batch": size}


ONE = (1, 8.0, [(1.0, 0.1), (3.0, 0.1), (5.0, 0.1), (7.0, 0.1)])  # long waits, fast tokens
TWO = (2, 6.0, [(1.0, 0.2), (1.0, 0.2), (4.0, 0.2), (4.0, 0.2)])
FOUR = (4, 4.0, [(2.0, 0.4)] * 4)  # the most throughput, the slowest tokens

IN_TIME = "in_time = [one for one in run.latencies if one.ttft <= ttft_limit]"
TPOT_MET = "one.tpot is None or one.tpot <= tpot_limit"

BEST_BATCH = Exercise(
    id="02.5",
    module="labkit.measure.batching",
    symbol="best_batch",
    core=False,
    minutes=15,
    difficulty=1,
    cases=(
        Case("one_run", _best(ONE), _is(1)),
        Case("no_limit", _best(ONE, TWO, FOUR), _is(4)),
        Case("slow_tokens", _best(ONE, TWO, FOUR, tpot_limit=0.3), _is(2)),
        Case("long_waits", _best(ONE, TWO, FOUR, ttft_limit=1.5), _is(2)),  # 1/8, 2/6, 0
        Case("exactly_at_the_limit", _best(ONE, TWO, FOUR, ttft_limit=2.0, tpot_limit=0.4), _is(4)),
        Case(
            "few_in_a_short_run",  # 3/6 against 2/2
            _best((2, 6.0, [(1.0, 0.1)] * 3), (4, 2.0, [(1.0, 0.1)] * 2 + [(1.0, 0.9)] * 2),
                  tpot_limit=0.5),
            _is(4),
        ),
        Case(
            "one_token_has_no_tpot",
            _best((1, 4.0, [(1.0, 0.1)]), (2, 4.0, [(1.0, None), (1.0, None)]), tpot_limit=0.2),
            _is(2),
        ),
        Case(
            "equal_goodput",
            _best(*((size, 4.0, [(1.0, 0.1)] * 2) for size in (8, 4, 16))),
            _is(4),
        ),
        Case("nobody_meets_it", _best(TWO, FOUR, ttft_limit=0.5), _is(None)),
        Case(
            "each_request_by_itself",  # the mean of 4 is below the limit, three of its four are not
            _best((1, 4.0, [(1.0, 0.1)] * 2 + [(4.0, 0.1)] * 2),
                  (4, 4.0, [(0.1, 0.1)] + [(2.6, 0.1)] * 3), ttft_limit=2.0),
            _is(1),
        ),
        Case(
            "each_tpot_by_itself",  # the mean of 4 is 0.25; of its four only two are in time
            _best((1, 4.0, [(1.0, 0.1)] * 3),
                  (4, 4.0, [(1.0, 0.1)] * 2 + [(1.0, 0.4)] * 2), tpot_limit=0.3),
            _is(1),
        ),
        Case(
            "one_token_too_late",
            _best((1, 4.0, [(1.0, 0.1)]), (2, 4.0, [(3.0, None)] * 2), ttft_limit=2.0),
            _is(1),
        ),
        Case("no_runs", _best(), _is(None)),
        Case("order_kept", _order_kept, {"batch sizes of `runs` afterwards": [8, 4]}),
    ),
    mistakes=(
        Mistake(
            "sorted_in_place",
            (
                (
                    "    for run in sorted(runs, key=lambda run: run.batch_size):",
                    "    runs.sort(key=lambda run: run.batch_size)\n    for run in runs:",
                ),
            ),
        ),
        Mistake(
            "throughput",
            ((IN_TIME, "in_time = run.latencies"), (f" if {TPOT_MET}", "")),
        ),
        Mistake("share_that_met", (("/ run.seconds", "/ len(run.latencies)"),)),
        Mistake("count_that_met", (("len(met) / run.seconds", "len(met)"),)),
        Mistake("ttft_only", ((f" if {TPOT_MET}", ""),)),
        Mistake("tpot_only", ((IN_TIME, "in_time = run.latencies"),)),
        Mistake("below_the_limit", (("one.ttft <= t", "one.ttft < t"),)),
        Mistake(
            "mean_of_the_run",
            (
                (
                    IN_TIME,
                    "mean = sum(one.ttft for one in run.latencies) / len(run.latencies)\n"
                    "        in_time = run.latencies if mean <= ttft_limit else []",
                ),
            ),
        ),
        Mistake("no_tpot_fails", (("one.tpot is None or ", ""),)),
        Mistake("the_larger_of_equals", (("goodput > best_goodput", "goodput >= best_goodput"),)),
    ),
)  # fmt: skip

EXERCISES = (BEST_BATCH,)
