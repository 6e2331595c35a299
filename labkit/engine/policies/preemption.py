"""What becomes of the keys and values of a preempted request.

Dropped and computed again, or copied to the host's memory and back: vLLM's paper (Kwon et al.,
2023, section 4.5) has both. Which one is cheaper depends on the machine and not on the request:
both costs grow with its tokens.
"""

from labkit.engine.request import Request

PREEMPTIONS = ("recompute", "swap", "auto")


class Recompute:
    """`swaps(request, pace)` is asked for one that has computed tokens, when the host has room.

    Here they are dropped. The prompt and what was generated are computed again as one prompt."""

    def swaps(self, request: Request, pace) -> bool:
        return False


class Swap:
    """They are copied to the host, as long as it has room."""

    def swaps(self, request: Request, pace) -> bool:
        return True


class Cheaper:
    """Whichever takes less time by the estimate: bytes there and back, or tokens computed again.

    `bytes_per_token` is of keys and values over all layers, `copy_bandwidth` in bytes/s.
    """

    def __init__(self, bytes_per_token: float, copy_bandwidth: float):
        self.seconds_per_token = 2 * bytes_per_token / copy_bandwidth

    def swaps(self, request: Request, pace) -> bool:
        return self.seconds_per_token < pace.per_token
