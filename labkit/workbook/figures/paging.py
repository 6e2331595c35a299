"""The figures of notebook 04: empty slots, batches in one memory, the prefix cache."""

from collections.abc import Mapping, Sequence

from labkit.measure.experiments.paging import FirstToken, PagingRun
from labkit.workbook.plots import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    Picture,
    house_style,
    new_picture,
    plain_number,
)

PAPER = (61.8, 79.6)  # percent of KV memory without a token: Kwon et al. 2023, 38.2 and 20.4 with


@house_style()
def unused_figure(rows: dict, blocks: Sequence[dict]) -> Picture:
    """Percent of reserved slots that stay empty: rows of equal length against blocks by size.

    `rows` and each of `blocks` are rows of `labkit.measure.bench.slots`.
    """
    picture, axes = new_picture(
        "Reserved slots that no token ever fills", "slots reserved at a time",
        "percent of reserved slots",
    )  # fmt: skip
    names = [f"row of\n{rows['block_size']:,}"] + [f"block of\n{b['block_size']}" for b in blocks]
    shares = [100 * one["unused_share"] for one in (rows, *blocks)]
    colours, hatches = [ORANGE] + [BLUE] * len(blocks), ["//"] + [""] * len(blocks)
    bars = axes.bar(names, shares, 0.6, color=colours, hatch=hatches, edgecolor="white")
    axes.bar_label(bars, [f"{share:.1f}%" for share in shares], padding=3)
    axes.axhspan(*PAPER, color=GREY, alpha=0.25, lw=0)
    axes.annotate("earlier systems, Kwon et al. 2023", (len(blocks) + 0.4, sum(PAPER) / 2),
                  ha="right", va="center")  # fmt: skip
    axes.set_ylim(0, 100)
    axes.grid(axis="x", visible=False)
    sizes = ", ".join(
        f"{share:.1f}% in blocks of {one['block_size']}"
        for one, share in zip(blocks, shares[1:], strict=True)
    )
    picture.story = f"Empty: {shares[0]:.1f}% of rows of {rows['block_size']:,}; {sizes}."
    return picture


@house_style()
def same_memory_figure(runs: Sequence[PagingRun], num_slots: Mapping[str, int]) -> Picture:
    """Three panels over the same runs, all measured: requests at once, tokens/s, time in line.

    `num_slots` is the KV memory of each run, in tokens.
    """
    picture = Picture(figsize=(9, 0.6 + 0.62 * len(runs) + 0.6), layout="constrained")
    panels = (
        ("requests at once", [run.most_running for run in runs], "{:.0f}", BLUE),
        ("tokens/s", [run.tokens_per_s for run in runs], "{:.1f}", GREEN),
        ("mean seconds in line", [run.mean_queue_s for run in runs], "{:.2f}", ORANGE),
    )
    names = [f"{run.name}\n{num_slots[run.name]:,} slots" for run in runs]
    for axes, (title, values, form, colour) in zip(
        picture.subplots(1, 3, sharey=True), panels, strict=True
    ):
        bars = axes.barh(range(len(runs)), values, 0.6, color=colour)
        axes.bar_label(bars, [form.format(value) for value in values], padding=3)
        axes.set_xlim(0, 1.3 * max([*values, 0.01]))
        axes.set_title(title, fontsize=10.5)
        axes.set_yticks(range(len(runs)), names)
        axes.grid(axis="y", visible=False)
    picture.axes[0].invert_yaxis()
    picture.story = "; ".join(
        f"{run.name}, {num_slots[run.name]:,} slots: {run.most_running} at once, "
        f"{plain_number(run.tokens_per_s)} tokens/s, {run.mean_queue_s:.2f} s in line"
        for run in runs
    ) + "."  # fmt: skip
    return picture


@house_style()
def at_once_figure(counted: Mapping[int, int], num_slots: int, block_size: int) -> Picture:
    """How many requests of one length run at once in `num_slots`: by formula, and as counted.

    `counted` is {tokens of a request: requests at once}.
    """
    picture, axes = new_picture(
        f"Requests at once in {num_slots:,} slots", "tokens of each request (logarithmic)",
        "requests at once (logarithmic)",
    )  # fmt: skip
    lengths = [2 ** (i / 8) for i in range(8 * 4, 8 * num_slots.bit_length() - 8 + 1)]
    blocks = [-(-int(n) // block_size) for n in lengths]
    fit = [num_slots // block_size // n for n in blocks]
    axes.plot(lengths, fit, "-", color=BLUE, label="blocks in the pool / blocks of a request")
    axes.plot(counted.keys(), counted.values(), "o", color=BLUE, label="counted")
    axes.axhline(4, color=ORANGE, linestyle="--", label="a batch of 4")
    for length, count in counted.items():
        axes.annotate(str(count), (length, count), (8, 6), textcoords="offset points")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(plain_number)
    axes.legend(loc="upper right")
    picture.story = "; ".join(
        f"{length:,} tokens each: {count} at once" for length, count in counted.items()
    ) + "."  # fmt: skip
    return picture


@house_style()
def prefix_figure(seen: Sequence[FirstToken]) -> Picture:
    """TTFT of requests that share a long beginning, and how many prompt tokens were computed."""
    picture, axes = new_picture(
        "The same long beginning, sent again (measured)", "milliseconds to the first token", "",
        height=1.4 + 0.5 * len(seen),
    )  # fmt: skip
    for place, one in enumerate(seen):
        colour, hatch = (BLUE, "") if one.num_cached_tokens else (ORANGE, "//")
        axes.barh(place, 1e3 * one.ttft, 0.6, color=colour, hatch=hatch, edgecolor="white")
        text = f" {1e3 * one.ttft:.0f} ms, {one.num_computed} of {one.num_prompt_tokens} computed"
        axes.annotate(text, (1e3 * one.ttft, place), va="center")
    axes.set_yticks(range(len(seen)), [one.name for one in seen])
    axes.set_xlim(0, 1.75 * max(1e3 * one.ttft for one in seen))
    axes.set_ylim(len(seen) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    picture.story = "; ".join(
        f"{one.name}: {1e3 * one.ttft:.0f} ms, {one.num_computed} of {one.num_prompt_tokens} "
        "prompt tokens computed" for one in seen
    ) + "."  # fmt: skip
    return picture
