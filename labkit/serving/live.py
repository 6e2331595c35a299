"""The figures of the last seconds, for the page: tokens/s, TTFT and ITL, totals."""

from collections import deque
from collections.abc import Sequence

WINDOW_S = 10.0  # over which latencies are told
MOST_SAMPLES = 4096  # the last ones, if there are more in that time


class Live:
    """Told of steps, tokens and ends; asked for a summary. Times are seconds of one clock."""

    def __init__(self):
        self.steps: deque[tuple[float, int]] = deque(maxlen=MOST_SAMPLES)  # (time, tokens)
        self.ttfts: deque[tuple[float, float]] = deque(maxlen=MOST_SAMPLES)
        self.itls: deque[tuple[float, float]] = deque(maxlen=MOST_SAMPLES)
        self.finished = self.failed = self.preemptions = 0
        self.step_s = 0.0

    def step(self, now: float, seconds: float, num_tokens: int) -> None:
        self.step_s = seconds
        self.steps.append((now, num_tokens))

    def token(self, now: float, ttft: float | None, itl: float | None) -> None:
        if ttft is not None:
            self.ttfts.append((now, ttft))
        if itl is not None:
            self.itls.append((now, itl))

    def summary(self, now: float) -> dict:
        """Milliseconds, and tokens of the last second."""
        ttfts = [value for time, value in self.ttfts if time > now - WINDOW_S]
        itls = [value for time, value in self.itls if time > now - WINDOW_S]
        return {
            "tokens_per_s": sum(count for time, count in self.steps if time > now - 1),
            "ttft_p50_ms": percentile_ms(ttfts, 50),
            "ttft_p99_ms": percentile_ms(ttfts, 99),
            "itl_p50_ms": percentile_ms(itls, 50),
            "itl_p99_ms": percentile_ms(itls, 99),
            "step_ms": round(1000 * self.step_s, 2),
            "preemptions": self.preemptions,
            "finished": self.finished,
            "failed": self.failed,
        }


def percentile_ms(values: Sequence[float], percent: int) -> float | None:
    """By nearest rank; None without values."""
    if not values:
        return None
    rank = -(-len(values) * percent // 100)
    return round(1000 * sorted(values)[max(rank, 1) - 1], 2)
