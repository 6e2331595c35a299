"""The figures of notebook 05: a softmax in tiles, which program reads which block, bytes moved, and
how many programs run at once."""

from collections.abc import Mapping, Sequence

from matplotlib.patches import Patch, Rectangle

from labkit.measure.experiments.kernels import Split, Way
from labkit.measure.roofline import Cost, Machine
from labkit.workbook.plots import (
    BLUE,
    COLOURS,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    VERMILLION,
    Picture,
    Step,
    house_style,
    new_picture,
    plain_number,
    roofline_figure,
)

HATCHES = ("", "///", "...", "xx")


@house_style()
def online_figure(
    largest: Sequence[float], totals: Sequence[float], results: Sequence[float], final: float
) -> Picture:
    """A softmax tile after tile: the largest score and the total so far, and sum / total."""
    tiles = range(1, len(largest) + 1)
    picture, axes = new_picture(
        "A softmax that never holds all scores", "tiles taken into account", "", height=3.4
    )
    axes.step(tiles, largest, where="post", color=ORANGE, label="largest score so far (log2)")
    axes.plot(tiles, totals, "s--", color=GREEN, label="total of the weights so far")
    axes.plot(tiles, results, "o-", color=BLUE, label="sum of values / total")
    axes.axhline(final, color=GREY, linestyle=":", label="softmax over all at once")
    axes.set_xticks([*tiles])
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    picture.story = (
        f"After {len(largest)} tiles the result is {results[-1]:.4f}, the softmax over all at once "
        f"gives {final:.4f}; the largest score grew {len({*largest}) - 1} times on the way."
    )
    return picture


@house_style()
def reads_figure(
    reads: Mapping[tuple, Mapping[int, int]], num_blocks: int, block_size: int, title: str
) -> Picture:
    """A row for each program (request, kv head, part), a column for each block of the pool; in a
    cell how many slots of it the program has read."""
    programs = [*reads]
    picture, axes = new_picture(
        title, "block of the pool", "program (request, kv head, part)",
        height=1.4 + 0.3 * len(programs),
    )  # fmt: skip
    for row, program in enumerate(programs):
        for block in range(num_blocks):
            slots, place = reads[program].get(block, 0), (block - 0.5, row - 0.5)
            number = program[0] % len(HATCHES)
            filled = {"facecolor": COLOURS[number], "alpha": 0.55, "hatch": HATCHES[number]}
            look = filled if slots else {"facecolor": "none"}
            axes.add_patch(Rectangle(place, 1, 1, edgecolor=GREY, lw=0.5, **look))
            if slots:
                axes.text(
                    block, row, str(slots), ha="center", va="center", fontsize=8.5, weight="bold",
                    color="black", bbox={"fc": "white", "ec": "none", "pad": 0.6},
                )  # fmt: skip
    axes.set_xlim(-0.5, num_blocks - 0.5)
    axes.set_ylim(len(programs) - 0.5, -0.5)
    axes.set_xticks(range(num_blocks))
    axes.set_yticks(range(len(programs)), ["{}, {}, {}".format(*p) for p in programs])
    axes.grid(visible=False)
    requests = sorted({p[0] for p in programs})
    handles = [
        Patch(facecolor=COLOURS[r % 4], alpha=0.55, hatch=HATCHES[r % 4], label=f"request {r}")
        for r in requests
    ]
    picture.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    heads = len({p[1] for p in programs})
    readers = [sum(block in blocks for blocks in reads.values()) for block in range(num_blocks)]
    picture.story = (
        f"{len(programs)} programs, {heads} kv heads; of {num_blocks} blocks of {block_size} slots "
        f"{sum(map(bool, readers))} are read, each by {max(readers)} programs at most; "
        f"{readers.count(0)} belong to nobody and are read by nobody."
    )
    return picture


@house_style()
def ways_figure(ways: Sequence[Way]) -> Picture:
    """Bytes that each way moves, as a multiple of the least."""
    picture, axes = new_picture(
        "Bytes moved by one decode step (counted)",
        "times the least possible",
        "",
        height=1.8 + 0.55 * len(ways),
    )
    pieces = (
        ("keys and values where they lie", BLUE, "", lambda way: way.kv),
        ("a copy of them, written and read", ORANGE, "///", lambda way: way.copies),
        ("parts of a split", PURPLE, "...", lambda way: way.parts),
        ("queries and results", GREEN, "xx", lambda way: way.ends),
    )
    for row, way in enumerate(ways):
        left = 0.0
        for name, colour, hatch, count in pieces:
            share = count(way) / way.least
            axes.barh(
                row, share, left=left, color=colour, hatch=hatch, edgecolor=GREY, height=0.6,
                label=name if row == 0 else None,
            )  # fmt: skip
            left += share
        axes.annotate(f"{left:.2f}×", (left, row), (5, 0), textcoords="offset points", va="center")
    axes.axvline(1, color=GREY, linestyle=":")
    axes.set_yticks(range(len(ways)), [way.name for way in ways])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.2 * max(way.factor for way in ways))
    axes.grid(axis="y", visible=False)
    picture.legend(loc="outside lower center", ncols=2)
    told = [f"{way.name}: {way.factor:.2f} times the least" for way in ways]
    picture.story = "; ".join(told) + "."
    return picture


@house_style()
def split_figure(whole: Sequence[Split], split: Sequence[Split], processors: int) -> Picture:
    """One sequence: programs there are, and modelled time, for one part and for several."""
    picture = Picture(figsize=(7.5, 3.9), layout="constrained")
    left, right = picture.subplots(1, 2)
    picture.suptitle("One sequence on an H100 (modelled)", color=GREY, weight="bold", x=0.01,
                     ha="left")  # fmt: skip
    lines = (("one part", whole, ORANGE, "s--"), ("split and merged", split, BLUE, "o-"))
    for name, rows, colour, mark in lines:
        contexts = [row.context for row in rows]
        left.plot(contexts, [row.programs for row in rows], mark, color=colour, label=name)
        right.plot(contexts, [1e6 * row.seconds for row in rows], mark, color=colour)
    left.axhline(processors, color=VERMILLION, linestyle=":", label=f"{processors} multiprocessors")
    left.set_ylabel("programs")
    right.set_ylabel("µs a layer")
    for axes in (left, right):
        axes.set_xlabel("tokens of context")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(contexts[::2], [plain_number(c / 1024) + "Ki" for c in contexts[::2]])
        axes.yaxis.set_major_formatter(plain_number)
    picture.legend(loc="outside lower center", ncols=3)
    longest, parts = whole[-1], split[-1]
    picture.story = (
        f"{longest.context:,} tokens: {longest.programs} programs without a split, "
        f"{parts.programs} with {parts.splits} parts, for {processors} multiprocessors; "
        f"{1e6 * longest.seconds:.0f} µs a layer against {1e6 * parts.seconds:.0f} µs (modelled)."
    )
    return picture


def decode_roofline(
    machine: Machine, num_flops: float, num_bytes: Mapping[str, float], title: str,
    seconds: Mapping[str, float] | None = None,
) -> Picture:  # fmt: skip
    """The roofs of a card, and ways to do the same arithmetic by the bytes that they move.

    A hollow mark is modelled: as fast as the roof allows for these bytes. Where `seconds` has been
    measured there is a filled one as well.
    """
    seconds = seconds or {}
    steps = [
        Step(name, Cost(num_flops, moved), seconds.get(name)) for name, moved in num_bytes.items()
    ]
    picture = roofline_figure(machine, steps)
    with house_style():
        picture.axes[0].set_title(title)
    kind = "hollow marks modelled by the bytes counted" if not seconds else "filled marks measured"
    picture.story = f"{title}: {picture.story} ({kind})"
    return picture
