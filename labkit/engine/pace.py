"""How long steps take here, learned from those that were made."""

from labkit.engine.request import Request

MEMORY = 0.98  # what a step counts for after the next one


class Pace:
    """seconds of a step ≈ fixed + per_token * tokens, by least squares that forget.

    Knows nothing at first, and then says 0.
    """

    def __init__(self):
        self.steps = self.x = self.y = self.xx = self.xy = 0.0
        self.fixed = self.per_token = 0.0

    def observe(self, num_tokens: int, seconds: float) -> None:
        """A step of so many tokens took so long."""
        self.steps = MEMORY * self.steps + 1
        self.x = MEMORY * self.x + num_tokens
        self.y = MEMORY * self.y + seconds
        self.xx = MEMORY * self.xx + num_tokens**2
        self.xy = MEMORY * self.xy + num_tokens * seconds
        spread = self.xx - self.x**2 / self.steps
        slope = (self.xy - self.x * self.y / self.steps) / spread if spread > 1e-9 else 0.0
        self.per_token = min(max(slope, 0.0), self.y / self.x)
        self.fixed = (self.y - self.per_token * self.x) / self.steps

    def seconds(self, request: Request) -> float:
        """What is left of a request, if it were alone from now on: all `max_tokens` of it."""
        known = request.num_tokens - request.num_computed_tokens
        steps = request.max_tokens - len(request.output_token_ids)
        return steps * self.fixed + (known + steps - 1) * self.per_token

    def tokens_within(self, seconds: float) -> int | None:
        """The most tokens of a step that takes no longer; None when that is not known."""
        return int((seconds - self.fixed) / self.per_token) if self.per_token else None
