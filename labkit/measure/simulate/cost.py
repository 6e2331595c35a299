"""How long a step takes, from what it computes: the model's place in a simulation.

Time is counted in whole picoseconds (ticks). So k steps at once take exactly as long as k
single ones, and a schedule is the same on every machine.
"""

import json
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from labkit.engine.plan import StepPlan

TICKS = 10**12  # in a second
LABELS = ("measured", "modelled")


class CostError(ValueError):
    """A cost model that can't be used; the message names the value, the limit and the remedy."""


def ticks(seconds: float) -> int:
    return round(seconds * TICKS)


def seconds(num_ticks: int) -> float:
    return num_ticks / TICKS


@dataclass(frozen=True)
class CostModel:
    """Seconds of a step that computes P prompt tokens and one token for each of D decoding
    requests, and reads the keys and values of C tokens, summed over its requests:

        memory  = weights_s + per_context_token_s * C
        compute = per_prompt_token_s * P + per_decode_s * D
        step    = fixed_s + memory + compute + per_swapped_block_s * blocks swapped

    With `overlap` the slower of memory and compute counts and not their sum, as on a roofline.
    `source` is "measured" or "modelled", `about` says on what or from what. Raises CostError
    for a coefficient that is not finite or below 0, and when a step could take no time.
    """

    fixed_s: float = 0.0
    weights_s: float = 0.0
    per_prompt_token_s: float = 0.0
    per_decode_s: float = 0.0
    per_context_token_s: float = 0.0
    per_swapped_block_s: float = 0.0
    overlap: bool = False
    source: str = "modelled"
    about: str = ""

    def __post_init__(self):
        for name in COEFFICIENTS:
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and 0 <= value < math.inf):
                raise CostError(f"{name} is {value!r}; seconds, 0 or more, are needed")
            object.__setattr__(self, f"_{name[:-2]}", ticks(value))
        if self.source not in LABELS:
            raise CostError(f"source is {self.source!r}; accepted are {', '.join(LABELS)}")
        if not isinstance(self.overlap, bool):
            raise CostError(f"overlap is {self.overlap!r}; true or false is needed")
        if self._fixed + self._weights < 1:
            raise CostError(
                f"fixed_s {self.fixed_s} and weights_s {self.weights_s} make a step of no time; "
                "one of them must be at least 1e-12"
            )

    def step(self, prompt: int, decodes: int, context: int, swapped: int = 0) -> int:
        """Ticks of one step; `swapped` counts blocks copied to the host and from it."""
        memory = self._weights + self._per_context_token * context
        compute = self._per_prompt_token * prompt + self._per_decode * decodes
        both = max(memory, compute) if self.overlap else memory + compute
        return self._fixed + both + self._per_swapped_block * swapped

    def stride(self, num_steps: int, decodes: int, context: int) -> int:
        """Ticks of `num_steps` decode steps; the first reads `context`, each later one `decodes`
        more tokens. Exactly the sum of `step` over them."""
        growth = self._per_context_token * decodes
        first = self._weights + self._per_context_token * context
        compute = self._per_decode * decodes
        if not self.overlap:
            first, bound = first + compute, 0  # `bound` steps are held back by computing
        elif growth:
            bound = min(max(-((first - compute) // growth), 0), num_steps)
        else:
            bound = num_steps if compute > first else 0
        rest = num_steps - bound
        memory = rest * first + growth * (bound * rest + rest * (rest - 1) // 2)
        return num_steps * self._fixed + bound * compute + memory

    def steps_until(self, time: int, decodes: int, context: int, most: int) -> int:
        """The fewest of those steps that take at least `time` ticks; not more than `most`."""
        counts = range(1, most)
        return 1 + bisect_left(counts, time, key=lambda k: self.stride(k, decodes, context))

    @classmethod
    def read(cls, file: Path) -> "CostModel":
        """From a JSON file with these fields. Raises CostError that names file and field."""
        try:
            values = json.loads(Path(file).read_text(encoding="utf-8"))
        except OSError as error:
            raise CostError(f"cost {file} can't be read: {error.strerror or error}") from None
        except ValueError as error:
            raise CostError(f"cost {file} is no JSON ({error}); write one object") from None
        if not isinstance(values, dict):
            raise CostError(f"cost {file} is no JSON object but {type(values).__name__}")
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise CostError(
                    f"cost {file}: field {name!r} is not known; accepted are {', '.join(known)}"
                )
        if "source" not in values:
            raise CostError(f"cost {file}: field 'source' is missing: {' or '.join(LABELS)}")
        try:
            return cls(**values)
        except CostError as error:
            raise CostError(f"cost {file}: {error}") from None

    def to_json(self) -> dict:
        return asdict(self)

    @classmethod
    def fit(cls, samples: Sequence["Sample"], **fields) -> "CostModel":
        """The coefficients that come nearest to measured steps, by least squares of the relative
        error: a decode step of 20 ms counts as much as a prompt of a second.

        A coefficient that would be negative is 0. CostError when no sample is there, or the
        steps are too much alike to tell the coefficients apart.
        """
        import numpy as np

        names = list(FITTED)
        rows = np.array([(1, s.prompt, s.decodes, s.context) for s in samples], dtype=float)
        if len(rows) < len(names):
            raise CostError(f"{len(rows)} measured steps; at least {len(names)} are needed")
        times = np.array([s.seconds for s in samples])
        rows /= times[:, None]
        if np.linalg.matrix_rank(rows / np.linalg.norm(rows, axis=0).clip(1e-300)) < len(names):
            raise CostError(
                f"{len(rows)} measured steps are too much alike to tell {', '.join(names)} "
                "apart; vary prompt, batch and context"
            )
        kept = list(range(len(names)))
        while True:
            found = np.linalg.lstsq(rows[:, kept], np.ones(len(rows)), rcond=None)[0]
            if (found >= 0).all():
                break
            kept.pop(int(found.argmin()))
        values = {names[i]: float(value) for i, value in zip(kept, found, strict=True)}
        return cls(**{"source": "measured", **values, **fields})

    def error(self, samples: Sequence["Sample"]) -> float:
        """The median over `samples` of |modelled - measured| / measured."""
        errors = sorted(
            abs(seconds(self.step(s.prompt, s.decodes, s.context)) / s.seconds - 1) for s in samples
        )
        return errors[len(errors) // 2]


def work_of(plan: StepPlan) -> tuple[int, int, int]:
    """Prompt tokens, decoding requests and context tokens of a step, as `CostModel` counts them.

    A chunk of one token is a decoding request; a prompt's last token costs the same.
    """
    prompt = decodes = context = 0
    for chunk in plan.chunks.values():
        count = chunk.num_tokens
        context += chunk.start + count
        if count == 1:
            decodes += 1
        else:
            prompt += count
    return prompt, decodes, context


COEFFICIENTS = [f.name for f in fields(CostModel) if f.name.endswith("_s")]
FITTED = ("fixed_s", "per_prompt_token_s", "per_decode_s", "per_context_token_s")


@dataclass(frozen=True)
class Sample:
    """One measured step: what it computed, as in `CostModel`, and its seconds."""

    prompt: int
    decodes: int
    context: int
    seconds: float
