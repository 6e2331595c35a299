"""The figures of notebook 03: what a new token reads, ITL and batches with and without a cache,
what is done beside the model, and what the rows of a cache hold."""

from collections.abc import Mapping, Sequence

from matplotlib.patches import Patch, Rectangle

from labkit.measure.experiments.caching import Served, Split
from labkit.workbook.plots import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SKY,
    Picture,
    house_style,
    new_picture,
    plain_number,
)

WITHOUT, WITH = (ORANGE, "s", "--"), (BLUE, "o", "-")  # a cache, in every figure


@house_style()
def reads_figure(start: int, n: int) -> Picture:
    """Which keys and values each query reads: `start` tokens are cached, `n` are new."""
    total = start + n
    picture, axes = new_picture(
        f"{n} new after {start} cached: what is computed, what is read",
        "position of keys and values",
        "position of the query",
        height=4.4,
    )
    for row in range(total):
        for column in range(row + 1):
            is_new = row >= start
            box = Rectangle(
                (column - 0.5, row - 0.5), 1, 1, edgecolor=GREY, linewidth=0.8,
                facecolor=BLUE if is_new else "none", hatch=None if is_new else "///",
                alpha=0.9 if is_new else 0.35,
            )  # fmt: skip
            axes.add_patch(box)
    axes.plot([start - 0.5] * 2, [start - 0.5, total - 0.5], "--", color=ORANGE)
    axes.set_xlim(-0.5, total - 0.5)
    axes.set_ylim(total - 0.5, -0.5)
    axes.set_xticks(range(total))
    axes.set_yticks(range(total))
    axes.grid(visible=False)
    earlier = "done in earlier steps:\nnever asked again"
    done = Patch(facecolor="none", edgecolor=GREY, hatch="///", label=earlier)
    now = Patch(facecolor=BLUE, label="this step")
    cached = "left of it: keys and values\nfrom the cache"
    (line,) = axes.plot([], [], "--", color=ORANGE, label=cached)
    axes.legend(handles=[done, now, line], loc="upper right")
    picture.story = (
        f"The {n} new queries read the keys and values of {total} positions; those of the first "
        f"{start} come from the cache, and the {start} old queries are needed by nobody."
    )
    return picture


@house_style()
def positions_figure(positions: Sequence[int], seconds: Mapping[str, Sequence[float]]) -> Picture:
    """How long one more token takes against how many are known: without a cache, then with one."""
    picture, axes = new_picture(
        "One more token, on the same decoder (measured)",
        "tokens known before it",
        "milliseconds per token (ITL)",
    )
    stories = []
    for (name, times), (colour, marker, line) in zip(seconds.items(), (WITHOUT, WITH), strict=True):
        axes.plot(positions, [1e3 * s for s in times], marker + line, color=colour, label=name)
        stories.append(
            f"{name}: {1e3 * times[0]:.0f} ms after {positions[0]} tokens, "
            f"{1e3 * times[-1]:.0f} ms after {positions[-1]} ({times[-1] / times[0]:.1f} times)"
        )
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left")
    picture.story = "; ".join(stories) + "."
    return picture


@house_style()
def batches_figure(
    batch_sizes: Sequence[int], seconds: Mapping[str, Sequence[float]], context_len: int
) -> Picture:
    """Tokens/s against the batch size, as a multiple of a batch of one: without a cache, with."""
    picture, axes = new_picture(
        f"What a larger batch brings at {context_len} tokens each (measured)",
        "sequences in the batch",
        "tokens/s, as a multiple of batch 1",
    )
    axes.plot(batch_sizes, batch_sizes, ":", color=GREY, label="if the batch were free")
    stories = []
    for (name, times), (colour, marker, line) in zip(seconds.items(), (WITHOUT, WITH), strict=True):
        speeds = [size / s for size, s in zip(batch_sizes, times, strict=True)]
        gains = [speed / speeds[0] for speed in speeds]
        axes.plot(batch_sizes, gains, marker + line, color=colour, label=name)
        stories.append(
            f"{name}: {speeds[0]:.0f} tokens/s alone, {speeds[-1]:.0f} in a batch of "
            f"{batch_sizes[-1]} ({gains[-1]:.1f} times)"
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(batch_sizes, [str(size) for size in batch_sizes])
    axes.yaxis.set_major_formatter(plain_number)
    axes.legend(loc="upper left")
    picture.story = "; ".join(stories) + "."
    return picture


@house_style()
def served_figure(rows: Sequence[Served]) -> Picture:
    """Tokens computed and tokens/s of the same requests, a bar for each engine."""
    picture = Picture(figsize=(7.5, 1.5 + 0.5 * len(rows)), layout="constrained")
    left, right = picture.subplots(1, 2, sharey=True)
    picture.suptitle("The same requests, three ways", color=GREY, weight="bold", x=0.01, ha="left")
    panels = (
        (left, "tokens through the model (counted)", [row.tokens_computed for row in rows]),
        (right, "tokens/s (measured)", [row.tokens_per_s for row in rows]),
    )
    for axes, label, values in panels:
        for place, (value, colour) in enumerate(zip(values, (GREEN, ORANGE, BLUE), strict=False)):
            axes.barh(place, value, color=colour, height=0.6, alpha=0.85)
            axes.annotate(
                plain_number(value), (value, place), (5, 0), textcoords="offset points", va="center"
            )
        axes.set_xlabel(label)
        axes.set_xlim(0, 1.25 * max(values))
        axes.xaxis.set_major_formatter(plain_number)
        axes.grid(axis="y", visible=False)
    left.set_yticks(range(len(rows)), [row.name for row in rows])
    left.invert_yaxis()
    picture.story = "; ".join(
        f"{row.name}: {row.tokens_computed:,} tokens computed, {row.tokens_per_s:.0f} tokens/s"
        for row in rows
    ).replace("\n", " ") + "."
    return picture


@house_style()
def split_figure(rows: Sequence[Split]) -> Picture:
    """The shares of a step beside the model and in it, and what splitting them could gain."""
    picture, axes = new_picture(
        "A decode step: beside the model, in the model",
        "share of the step, one after the other (%)",
        "",
        height=1.6 + 0.62 * len(rows),
    )
    for place, row in enumerate(rows):
        beside = 100 * (1 - row.busy)
        axes.barh(place, beside, color=ORANGE, height=0.55, hatch="//", edgecolor=GREY)
        axes.barh(place, 100 - beside, left=beside, color=SKY, height=0.55, edgecolor=GREY)
        axes.annotate(
            f"at most {row.gain:.2f}×", (100, place), (8, 0), textcoords="offset points",
            va="center",
        )  # fmt: skip
    axes.set_yticks(range(len(rows)), [f"{row.name}\n({row.kind})" for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 122)
    axes.set_xticks(range(0, 101, 20))
    axes.grid(axis="y", visible=False)
    handles = [
        Patch(facecolor=ORANGE, hatch="//", edgecolor=GREY, label="beside the model"),
        Patch(facecolor=SKY, edgecolor=GREY, label="in the model"),
    ]
    picture.legend(handles=handles, loc="outside lower center", ncols=2)
    picture.story = "; ".join(
        f"{row.name} ({row.kind}): {1e3 * row.beside_s:.2f} ms beside the model, "
        f"{1e3 * row.model_s:.2f} ms in it, splitting gains at most {row.gain:.2f} times"
        for row in rows
    ).replace("\n", " ") + "."
    return picture


@house_style()
def rows_figure(lengths: Sequence[tuple[int, int]], row_length: int, title: str) -> Picture:
    """Rows of a contiguous cache: (prompt, output) tokens of each request, and what stays empty."""
    picture, axes = new_picture(
        title, f"tokens in a row of {row_length:,}", "request", height=1.5 + 0.17 * len(lengths)
    )
    for place, (prompt, output) in enumerate(lengths):
        axes.barh(place, row_length, color="none", edgecolor=GREY, height=0.8, linewidth=0.6)
        axes.barh(place, prompt, color=BLUE, height=0.8)
        axes.barh(place, output, left=prompt, color=ORANGE, height=0.8, hatch="//", edgecolor=GREY)
    axes.set_ylim(len(lengths) - 0.4, -0.6)
    axes.set_yticks([])
    axes.grid(visible=False)
    handles = [
        Patch(facecolor=BLUE, label="prompt"),
        Patch(facecolor=ORANGE, hatch="//", edgecolor=GREY, label="output"),
        Patch(facecolor="none", edgecolor=GREY, label="reserved, never used"),
    ]
    picture.legend(handles=handles, loc="outside lower center", ncols=3)
    used = sum(map(sum, lengths))
    share = used / (row_length * len(lengths))
    picture.story = (
        f"{len(lengths)} rows of {row_length:,} tokens reserve {row_length * len(lengths):,}; "
        f"{used:,} are ever used, {100 * share:.0f}%."
    )
    return picture
