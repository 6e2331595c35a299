"""Notebook 10, what was good and what it cost: `SLO.is_met` and `cost_per_million`."""

import math

from labkit.workbook.registry import Case, Exercise, Mistake

STALLED = (0.25, 0.5, 0.75, 2.0, 2.25)  # gaps of 0.25, 0.25, 1.25, 0.25 s: 0.5 on average
MANY = [0.25 * number + (number > 150) for number in range(1, 302)]  # 300 gaps, one of 1.25 s


def _request(token_times, **limits):
    """A request that arrived at 0 and had its tokens at these seconds."""

    def observe(part):
        from labkit.measure.metrics import latency

        return part.SLO(**limits).is_met(latency(0.0, token_times))

    return observe


MET, MISSED = True, False
IS_MET = Exercise(
    id="10.1",
    module="labkit.measure.slo",
    symbol="SLO.is_met",
    core=True,
    minutes=10,
    difficulty=1,
    cases=(
        Case("in_time", _request([0.25, 0.5, 0.75], ttft=0.5, tpot=0.5), MET),
        Case("late", _request([0.75, 1.0], ttft=0.5), MISSED),
        Case("exactly", _request([0.5, 1.0], ttft=0.5, itl=0.5, tpot=0.5, e2e=1.0), MET),
        Case("one_of_two", _request([0.25, 1.25, 2.25], ttft=0.5, tpot=0.75), MISSED),
        Case("stall", _request(STALLED, itl=1.0), MISSED),
        Case("long_stall", _request([0.25, 0.5, 10.0, 10.25], itl=1.0), MISSED),
        Case("one_of_many", _request(MANY, itl=1.0), MISSED),
        Case("stall_on_average", _request(STALLED, tpot=0.75), MET),
        Case("whole_answer", _request([0.75, 1.0, 2.5], ttft=1.0, e2e=2.0), MISSED),
        Case("one_token", _request([0.25], ttft=0.5, itl=0.125, tpot=0.125), MET),
        Case("one_late_token", _request([0.75], ttft=0.5, itl=0.125), MISSED),
        Case("one_late_token", _request([0.75], e2e=0.5), MISSED),
        Case("no_gap", _request([1.5, 1.75, 2.0], ttft=2.0, itl=0.5), MET),
        Case("no_limit", _request([100.0, 200.0]), MET),
        *(
            Case("zero", _request([0.25, 0.5], **{limit: 0.0}), MISSED)
            for limit in ("ttft", "itl", "tpot", "e2e")
        ),
    ),
    mistakes=(
        Mistake("mean_for_itl", (("max(latency.itl, default=None)", "latency.tpot"),)),
        Mistake("longest_for_tpot", (("(latency.tpot, self.tpot)", "(longest_gap, self.tpot)"),)),
        Mistake("ttft_among_itl", (
            ("max(latency.itl, default=None)", "max((latency.ttft, *latency.itl))"),
        )),
        Mistake("on_time_missed", (("value > limit", "value >= limit"),)),
        Mistake("all_must_fail", (("return not any(", "return not all("),)),
        Mistake("e2e_forgotten", (("        (latency.e2e, self.e2e),\n", ""),)),
        Mistake("one_token_missed", (
            ("value is not None and value > limit", "(value is None or value > limit)"),
        )),
        Mistake("no_gap_raises", (("max(latency.itl, default=None)", "max(latency.itl)"),)),
        Mistake("milliseconds", (("value > limit", "1000 * value > limit"),)),
        Mistake("zero_is_none", (("limit is not None", "limit"),)),
    ),
)  # fmt: skip


def _cost(price, tokens, seconds):
    def observe(part):
        try:
            return part.cost_per_million(price, tokens, seconds)
        except ValueError:
            return "ValueError"

    return observe


COST = Exercise(
    id="10.3",
    module="labkit.measure.cost",
    symbol="cost_per_million",
    core=False,
    minutes=10,
    difficulty=1,
    cases=(
        Case("an_hour", _cost(2.0, 1_000_000, 3600.0), 2.0),
        Case("twice_as_many", _cost(2.0, 2_000_000, 3600.0), 1.0),
        Case("a_minute", _cost(3.0, 50_000, 60.0), 1.0),
        Case("nothing_good", _cost(2.0, 0, 60.0), math.inf),
        Case("for_free", _cost(0.0, 1000, 60.0), 0.0),
        Case("free_nothing", _cost(0.0, 0, 60.0), math.inf),
        Case("uneven", _cost(1.0, 1000, 7.0), 1.9444444444444444),  # 70 / 36
        Case("half_a_second", _cost(3.6, 1000, 0.5), 0.5),
        Case("no_time", _cost(2.0, 1000, 0.0), "ValueError"),
        Case("no_time", _cost(2.0, 0, 0.0), "ValueError"),
        Case("negative", _cost(-0.5, 1000, 60.0), "ValueError"),
        Case("negative", _cost(2.0, -1, 60.0), "ValueError"),
        Case("negative", _cost(2.0, 1000, -60.0), "ValueError"),
        Case("endless", _cost(2.0, 1000, math.inf), "ValueError"),
    ),
    mistakes=(
        Mistake("seconds_for_hours", (("good_tokens * 3600 / seconds", "good_tokens / seconds"),)),
        Mistake("upside_down", (
            ("1e6 * price_per_hour / tokens_per_hour", "tokens_per_hour / 1e6 / price_per_hour"),
        )),
        Mistake("per_thousand", (("1e6 * price", "1e3 * price"),)),
        Mistake("time_forgotten", (
            ("good_tokens * 3600 / seconds", "good_tokens"),
        )),
        Mistake("nothing_is_free", (("return math.inf", "return 0.0"),)),
        Mistake("divides_by_zero", (
            ("    if good_tokens == 0:\n        return math.inf\n", ""),
        )),
        Mistake("anything_goes", (
            ("price_per_hour < 0 or good_tokens < 0 or not 0 < seconds < math.inf", "seconds == 0"),
        )),
    ),
)  # fmt: skip

EXERCISES = (IS_MET, COST)
