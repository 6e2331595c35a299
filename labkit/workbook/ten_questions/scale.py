"""The drawn scales, as SVG: predicted against measured, and all predictions on one strip.

Shape says the same as colour: a ring was predicted, a filled diamond was measured, and the band is
a factor of 2 around the prediction. Colours are classes of `page.css`, so that they follow the
theme. Labels are English, as in every figure; nothing but numbers and escaped text gets in.
"""

import math
from html import escape

from labkit.workbook.ten_questions.account import number
from labkit.workbook.ten_questions.kept import Comparison

WIDTH, LEFT, RIGHT, AXIS = 360.0, 12.0, 348.0, 34.0
MOST = 16.0  # the strip ends here, either way; what lies beyond stands at its end


def scale(one: Comparison) -> str:
    """One prediction beside what was measured, on an axis from 0."""
    values = [value for value in (one.predicted, one.measured) if value is not None]
    band = None if one.predicted is None else sorted((one.predicted / 2, one.predicted * 2))
    low = min([0.0, *values])
    high = max([*values, min(band[1], 1.6 * max(values)) if band else 0.0])
    high = high if high - low > 1e-99 else 1.0
    step = tick_step(low, high)

    def x(value: float) -> float:
        inside = (value - low) / (high - low)
        return LEFT + (RIGHT - LEFT) * min(1.0, max(0.0, inside))

    parts = []
    if band:
        left, right = x(band[0]), x(band[1])
        parts.append(
            f'<rect class="band" x="{left:.1f}" y="{AXIS - 9:.1f}" '
            f'width="{max(right - left, 0):.1f}" height="18"/>'
        )
    parts.append(line(LEFT, AXIS, RIGHT, AXIS, "axis"))
    for tick in ticks(low, high, step):
        parts += [line(x(tick), AXIS - 3, x(tick), AXIS + 3, "axis")]
        parts += [words(x(tick), AXIS + 20, number(tick), "tick")]
    if one.predicted is not None:
        parts.append(ring(x(one.predicted), AXIS))
    parts.append(diamond(x(one.measured), AXIS))
    kind = "modelled" if one.modelled else "measured"
    label = f"{kind} {number(one.measured)} {one.unit}"
    if one.predicted is not None:
        label = f"predicted {number(one.predicted)}, {label}"
    parts.insert(0, words(LEFT, 14, label if len(label) < 58 else label[:57] + "…", "label"))
    return svg("".join(parts), 58, label)


def strip(compared: list[Comparison]) -> str:
    """Every prediction as a mark at measured over predicted, on a logarithmic axis."""

    def x(ratio: float) -> float:
        place = math.log(min(MOST, max(1 / MOST, ratio)), MOST)
        return (LEFT + RIGHT) / 2 + place * (RIGHT - LEFT - 12) / 2

    marks, taken = [], {}
    for one in sorted(compared, key=lambda one: one.key):
        ratio = one.ratio if one.ratio is not None else (1.0 if one.is_hit else MOST)
        at = x(ratio if ratio > 0 else 1 / MOST)
        column = round(at / 9)
        row = taken[column] = taken.get(column, -1) + 1
        y = 66 - 10 * min(row, 5)
        marks.append(dot(at, y) if one.is_hit else diamond(at, y, "miss"))
    axis = [
        f'<rect class="band" x="{x(0.5):.1f}" y="8" width="{x(2) - x(0.5):.1f}" height="66"/>',
        line(LEFT, 74, RIGHT, 74, "axis"),
    ]
    for ratio, label in ((1 / 16, "1/16"), (1 / 4, "1/4"), (0.5, "1/2"), (1, "1"), (2, "2")):
        axis += [line(x(ratio), 74, x(ratio), 78, "axis"), words(x(ratio), 91, label, "tick")]
    for ratio, label in ((4, "4"), (16, "16 times")):
        axis += [line(x(ratio), 74, x(ratio), 78, "axis"), words(x(ratio), 91, label, "tick")]
    hits = sum(one.is_hit for one in compared)
    story = f"measured over predicted: {hits} of {len(compared)} within a factor of 2"
    return svg("".join([*axis, *marks]), 98, story)


def tick_step(low: float, high: float) -> float:
    """1, 2 or 5 times a power of ten, for three to six ticks."""
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    return next((power * n for n in (1, 2, 5) if power * n >= rough), power * 10)


def ticks(low: float, high: float, step: float) -> list[float]:
    """Multiples of `step` between the two ends."""
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [index * step for index in range(first, min(last, first + 8) + 1)]


def svg(body: str, height: float, story: str) -> str:
    told = escape(story, quote=True)
    return (
        f'<svg class="scale" role="img" aria-label="{told}" viewBox="0 0 {WIDTH:.0f} {height:.0f}">'
        f"<title>{told}</title>{body}</svg>"
    )


def line(x1: float, y1: float, x2: float, y2: float, name: str) -> str:
    return f'<line class="{name}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def words(x: float, y: float, said: str, name: str) -> str:
    """A text centred at `x`; at either end it stays inside."""
    anchor = "start" if x < LEFT + 14 else "end" if x > RIGHT - 14 else "middle"
    return (
        f'<text class="{name}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(said)}</text>'
    )


def ring(x: float, y: float) -> str:
    return f'<circle class="predicted" cx="{x:.1f}" cy="{y:.1f}" r="6"/>'


def dot(x: float, y: float) -> str:
    return f'<circle class="hit" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'


def diamond(x: float, y: float, name: str = "measured") -> str:
    size = 6 if name == "measured" else 5
    return (
        f'<path class="{name}" d="M{x:.1f} {y - size:.1f}L{x + size:.1f} {y:.1f}'
        f'L{x:.1f} {y + size:.1f}L{x - size:.1f} {y:.1f}Z"/>'
    )
