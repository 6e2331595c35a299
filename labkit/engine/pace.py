"""How long steps take here, learned from those that were made."""

from labkit.engine.request import Request

MEMORY = 0.98  # what a step counts for after the next one
LONGEST = 4.0  # a step that takes longer than so many times the estimate counts for no more


class Pace:
    """seconds of a step ≈ fixed + per_token * tokens, by least squares that forget.

    Knows nothing at first, and then says 0. As long as all steps are alike they tell nothing of
    a token, and what was known of it stays.
    """

    def __init__(self):
        self.steps = self.x = self.y = self.xx = self.xy = 0.0
        self.fixed = self.per_token = 0.0

    def observe(self, num_tokens: int, seconds: float) -> None:
        """A step of so many tokens took so long."""
        if self.steps > 4:  # a pause of the whole machine says nothing of the next steps
            seconds = min(seconds, LONGEST * (self.fixed + self.per_token * num_tokens))
        self.steps = MEMORY * self.steps + 1
        self.x = MEMORY * self.x + num_tokens
        self.y = MEMORY * self.y + seconds
        self.xx = MEMORY * self.xx + num_tokens**2
        self.xy = MEMORY * self.xy + num_tokens * seconds
        self._fit()

    def doubt(self) -> None:
        """Somebody was refused by this estimate while nothing runs that could correct it."""
        if self.steps:
            self.y, self.xy, self.per_token = 0.9 * self.y, 0.9 * self.xy, 0.9 * self.per_token
            self._fit()

    def _fit(self) -> None:
        mean = self.x / self.steps
        spread = self.xx / self.steps - mean**2
        if spread > 0.01 * mean**2:
            slope = (self.xy - self.y * mean) / (self.steps * spread)
            self.per_token = max(slope, 0.0)
        self.per_token = min(self.per_token, self.y / self.x)  # a step has no less than 0 fixed
        self.fixed = self.y / self.steps - self.per_token * mean

    def seconds(self, request: Request, num_cached: int = 0) -> float:
        """What is left of a request, if it were alone from now on: all `max_tokens` of it.

        `num_cached` tokens of a waiting one are in the prefix cache.
        """
        known = request.num_tokens - max(request.num_computed_tokens, num_cached)
        steps = request.max_tokens - len(request.output_token_ids)
        return steps * self.fixed + (known + steps - 1) * self.per_token

    def tokens_within(self, seconds: float) -> int | None:
        """The most tokens of a step that takes no longer; None when that is not known."""
        return int((seconds - self.fixed) / self.per_token) if self.per_token else None
