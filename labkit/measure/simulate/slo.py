"""The SLO of `labkit.measure.slo` over the columns of a group: a million requests in a second.

`SLO.is_met` says the same of one request, and a test holds them together.
"""

from collections.abc import Iterator
from itertools import compress

from labkit.measure.simulate.records import Group
from labkit.measure.slo import SLO


def met(slo: SLO, group: Group) -> Iterator[bool]:
    """For each request of a group that was answered, whether it stayed within every limit."""
    columns = [
        (values, limit)
        for values, limit in (
            (group.ttft, slo.ttft),
            (group.longest_gap, slo.itl),
            (group.tpot, slo.tpot),  # NaN, of a single token, is above no limit
            (group.e2e, slo.e2e),
        )
        if limit is not None
    ]
    if not columns:
        return iter([True] * len(group.e2e))
    limits = [limit for _, limit in columns]
    rows = zip(*(values for values, _ in columns), strict=True)
    return (
        not any(value > limit for value, limit in zip(row, limits, strict=True)) for row in rows
    )


def num_met(slo: SLO, group: Group) -> int:
    """How many requests of a group met the SLO; the late and the failed did not."""
    return sum(met(slo, group))


def good_tokens(slo: SLO, group: Group) -> int:
    """The output tokens of the requests that met the SLO."""
    return int(sum(compress(group.num_tokens, met(slo, group))))
