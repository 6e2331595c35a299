"""A circuit breaker: when to leave a replica alone, and when to try it again. No clock, no I/O.

The pattern is Nygard's ("Release It!", 2007). Of each attempt that was allowed the end is
reported: it failed, succeeded, or was cancelled before anything could be learnt from it; of a
probe also that its answer began. While the breaker is open only its probe is reported: what was
sent before it opened would end a probe that isn't its own.
"""


class Breaker:
    """Leaves a replica out after so many `failures` in a row, and takes it back after a probe.

    closed     every request may go there
    open       none may, for a cool-down; it doubles with each probe that fails, to `longest_s`
    half-open  the cool-down is over: one request goes there, and whether its answer begins decides
    """

    def __init__(self, failures: int = 3, cooldown_s: float = 1.0, longest_s: float = 30.0):
        self.failures, self.shortest_s, self.longest_s = failures, cooldown_s, longest_s
        self.num_failed = 0  # in a row, while it is closed
        self.opened_at: float | None = None  # None while it is closed
        self.cooldown_s = cooldown_s
        self.is_probing = False  # the probe is under way, and nothing is known of it yet

    def allows(self, now: float) -> bool:
        """Whether a request may go to the replica at `now`, in seconds of any one clock.

        True takes the probe of a half-open breaker: ask only for a request that will be sent.
        """
        if self.opened_at is None:
            return True
        if self.is_probing or now < self.opened_at + self.cooldown_s:
            return False
        self.is_probing = True
        return True

    def failed(self, now: float) -> None:
        """A request got no answer. Those that were on their way when it opened don't count: fifty
        of them, each doubling the cool-down, would shut the replica out for long."""
        if self.opened_at is None:
            self.num_failed += 1
            if self.num_failed >= self.failures:
                self.opened_at = now
        elif self.is_probing:
            self.opened_at, self.is_probing = now, False
            self.cooldown_s = min(2 * self.cooldown_s, self.longest_s)

    def began(self, now: float) -> None:
        """The probe's answer began: others may come. But a replica may begin every answer and
        break each of them off, so the first that is lost opens it again, for twice as long."""
        self.num_failed, self.opened_at, self.is_probing = self.failures - 1, None, False
        self.cooldown_s = min(2 * self.cooldown_s, self.longest_s)

    def succeeded(self, now: float) -> None:
        """A request was answered: the replica lives, whatever was thought of it."""
        self.num_failed, self.opened_at, self.is_probing = 0, None, False
        self.cooldown_s = self.shortest_s

    def cancelled(self, now: float) -> None:
        """The probe's client left before there was an answer: the next request is the probe.
        Only for a probe (`is_open` when it was sent); else it would free the probe of another."""
        self.is_probing = False

    @property
    def is_open(self) -> bool:
        """Open or half-open: a request that is allowed is a probe."""
        return self.opened_at is not None

    def state(self, now: float) -> str:
        """How it is called in logs and metrics; takes no probe."""
        if self.opened_at is None:
            return "closed"
        return "open" if now < self.opened_at + self.cooldown_s else "half-open"
