"""Service level objectives: which requests met them, and how many did a second."""

from dataclasses import dataclass

from labkit.measure.simulate.records import Group


@dataclass(frozen=True)
class SLO:
    """Limits in seconds, None for no limit. `itl` is of every gap of a request, `tpot` of their
    mean."""

    ttft: float | None = None
    itl: float | None = None
    tpot: float | None = None
    e2e: float | None = None

    def __bool__(self) -> bool:
        return any(limit is not None for limit in (self.ttft, self.itl, self.tpot, self.e2e))

    def met(self, group: Group) -> int:
        """How many requests of a group stayed within every limit; the late and the failed did
        not."""
        columns = [
            (values, limit)
            for values, limit in (
                (group.ttft, self.ttft),
                (group.longest_gap, self.itl),
                (group.tpot, self.tpot),
                (group.e2e, self.e2e),
            )
            if limit is not None
        ]
        if not columns:
            return len(group.e2e)
        limits = [limit for _, limit in columns]
        rows = zip(*(values for values, _ in columns), strict=True)
        return sum(
            not any(value > limit for value, limit in zip(row, limits, strict=True)) for row in rows
        )

    def __str__(self) -> str:
        named = {"TTFT": self.ttft, "every ITL": self.itl, "TPOT": self.tpot, "E2E": self.e2e}
        told = [f"{name} <= {1000 * v:g} ms" for name, v in named.items() if v is not None]
        return ", ".join(told) or "none"
