"""Service level objectives: whether a request met its limits, and how many a second did.

The one definition of meeting an SLO, for `bench serve`, the simulator and the notebooks.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from labkit.measure.metrics import Latency


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

    def is_met(self, latency: Latency) -> bool:
        """Whether a request stayed within every limit; a value equal to its limit is within.

        All are seconds. `itl` limits the longest gap between two tokens, `tpot` the mean gap. A
        request of one token has no gap and no TPOT (None), and can't miss these two. Without any
        limit every request that has been answered meets the SLO.
        """
        longest_gap = max(latency.itl, default=None)
        pairs = (
            (latency.ttft, self.ttft),
            (longest_gap, self.itl),
            (latency.tpot, self.tpot),
            (latency.e2e, self.e2e),
        )
        return not any(
            limit is not None and value is not None and value > limit for value, limit in pairs
        )

    def within(self, deadline: float | None) -> "SLO":
        """The same limits, and a request's own `deadline`: seconds from its arrival, or None."""
        if deadline is None:
            return self
        return replace(self, e2e=deadline if self.e2e is None else min(self.e2e, deadline))

    def __str__(self) -> str:
        named = {"TTFT": self.ttft, "every ITL": self.itl, "TPOT": self.tpot, "E2E": self.e2e}
        told = [f"{name} <= {1000 * v:g} ms" for name, v in named.items() if v is not None]
        return ", ".join(told) or "none"


def goodput(latencies: Iterable[Latency | None], slo: SLO, seconds: float) -> float:
    """Requests that met the SLO, for each second of the run.

    `latencies` has one entry for each request that was sent; None stands for one that got no
    whole answer, which never meets an SLO. `seconds` is the wall time, from the first arrival to
    the last token; ValueError unless it is above 0. The word as it is used here is from Zhong et
    al., "DistServe" (OSDI 2024).
    """
    if not 0 < seconds < math.inf:
        raise ValueError(f"seconds is {seconds}; the wall time of a run is above 0 and finite")
    met = sum(latency is not None and slo.is_met(latency) for latency in latencies)
    return met / seconds


@dataclass(frozen=True)
class Preset:
    """Limits that others have agreed on. `share` is the part of the requests that must meet them.

    MLPerf looks at the 99th percentile of TTFT and at that of TPOT, each for itself. Here 99% of
    the requests must meet both, which is as strict or stricter: two sets of 1% may be late there.
    """

    slo: SLO
    share: float
    source: str


def mlperf(ttft_ms: float, tpot_ms: float, round_: str) -> Preset:
    source = f"MLPerf Inference {round_}, server; loadgen/mlperf.conf of mlcommons/inference"
    return Preset(SLO(ttft=ttft_ms / 1000, tpot=tpot_ms / 1000), 0.99, source)


PRESETS = {  # the round that brought each of them
    "llama2-70b": mlperf(2000, 200, "v4.0, 2024-03"),
    "llama2-70b-interactive": mlperf(450, 40, "v5.0, 2025-04"),
    "mixtral-8x7b": mlperf(2000, 200, "v4.1, 2024-08"),
    "llama3.1-8b": mlperf(2000, 100, "v5.1, 2025-09"),
    "llama3.1-8b-interactive": mlperf(500, 30, "v5.1, 2025-09"),
    "llama3.1-405b": mlperf(6000, 175, "v5.0, 2025-04"),
    "llama3.1-405b-interactive": mlperf(4500, 80, "v5.1, 2025-09"),
    "deepseek-r1": mlperf(2000, 80, "v5.1, 2025-09"),
    "deepseek-r1-interactive": mlperf(1500, 15, "v6.0, 2026-04"),
}
