"""An X-ray of the block pool, drawn: the pool as a grid, and the block tables beside it."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from labkit.workbook.figures.xray_state import XRay, judged, labels_of, story_of, xray_of
from labkit.workbook.plots import COLOURS, GREY, VERMILLION, Picture, house_style

HATCHES = (None, "//", "..", "xx")  # one more for each round of the colours
MOST_ROWS = 12  # block tables drawn
MOST_WIDE = 24  # blocks of a table drawn


def columns_of(num_blocks: int) -> int:
    return 8 if num_blocks <= 24 else 16 if num_blocks <= 256 else 32


@house_style()
def xray_figure(xray: XRay, title: str, names: Sequence[str] | None = None) -> Picture:
    """Left the pool, block by block; right the block tables, in the order of the tokens.

    A block's colour, hatch and name are its holder's; the part without tokens is pale. A block
    of two holders has both names, a cached free one says so, an invalid access has a
    thick frame and a !. `names` are all requests of a series of X-rays, so that each keeps its
    colour.
    """
    names = list(names or xray.tables)
    wide = columns_of(xray.num_blocks)
    high = -(-xray.num_blocks // wide)
    rows = [*xray.tables][:MOST_ROWS]
    longest = max([len(xray.tables[name]) for name in rows] + [1])
    if xray.bad and xray.bad[0] in rows:
        longest = max(longest, xray.bad[1] // xray.block_size + 1)
    cells = wide + min(longest, MOST_WIDE) + 3
    height = max(0.62 * high * 9.5 / cells, 0.30 * len(rows), 0.9) + 0.9
    picture = Picture(figsize=(9.5, min(height, 9)), layout="constrained")
    left, right = picture.subplots(1, 2, width_ratios=[wide, min(longest, MOST_WIDE) + 3])
    left.set_title(title)
    right.set_title("block tables", fontweight="normal", fontsize=10.5)
    draw_pool(left, xray, names, wide, high)
    draw_tables(right, xray, names, rows, min(longest, MOST_WIDE))
    picture.story = story_of(xray)
    return picture


def look_of(names: Sequence[str], name: str) -> dict:
    place = names.index(name)
    hatch = HATCHES[place // len(COLOURS) % len(HATCHES)]
    return {"facecolor": COLOURS[place % len(COLOURS)], "hatch": hatch, "edgecolor": "white"}


def draw_block(axes: Axes, xray: XRay, names, x: float, y: float, holders, text: str, small=""):
    """One block, 1 by 1, its lower left corner at (x, y); `holders` are (request, slots filled)."""
    share = 0.9 / max(len(holders), 1)
    for i, (name, filled) in enumerate(holders):
        look = look_of(names, name)
        bottom, colour = y + 0.05 + (len(holders) - 1 - i) * share, look["facecolor"]
        axes.add_patch(Rectangle((x + 0.05, bottom), 0.9, share, fc=colour, alpha=0.2, lw=0))
        if filled:
            width = 0.9 * filled / xray.block_size
            axes.add_patch(Rectangle((x + 0.05, bottom), width, share, lw=0, **look))
    if holders:
        edge = look_of(names, holders[0][0])["facecolor"]
        axes.add_patch(Rectangle((x + 0.05, y + 0.05), 0.9, 0.9, fc="none", ec=edge, lw=1))
    style = {"ha": "center", "va": "center", "color": "white" if holders else GREY}
    if holders:  # it reads on the colour and on the empty part, on light pages and on dark ones
        style["path_effects"] = [withStroke(linewidth=2, foreground="#444444")]
    if text:
        size = 10 if len(text) <= 2 else 8 if len(text) <= 3 else 5
        axes.text(x + 0.5, y + 0.42, text, fontsize=size, fontweight="bold", **style)
    if small:
        axes.text(x + 0.5, y + 0.8, small, fontsize=5.5, **style)


def draw_pool(axes: Axes, xray: XRay, names: list[str], wide: int, high: int) -> None:
    owners, labels = xray.owners, labels_of(names)
    hit = judged(xray)[0] if xray.bad else None
    named_cells = wide <= 16
    places = {b: (b % wide, high - 1 - b // wide) for b in range(xray.num_blocks)}
    free = [places[block] for block in places if block not in owners]
    cells = [Rectangle((x + 0.05, y + 0.05), 0.9, 0.9) for x, y in free]
    axes.add_collection(PatchCollection(cells, fc="none", ec=GREY, lw=1, ls=":"))
    for block, (x, y) in places.items():
        holders = [
            (name, xray.filled(name, [*xray.tables[name]].index(block)))
            for name in owners.get(block, ())
        ]
        text = "+".join(labels[name] for name, _ in holders)
        if len(holders) > 3:
            text = f"{len(holders)}x"
        if not named_cells:
            text = ""
        if not holders and block in xray.cached:
            axes.add_patch(Rectangle((x + 0.05, y + 0.05), 0.9, 0.9, fc=GREY, alpha=0.3, lw=0))
            text = "cached" if named_cells else "·"
        small = str(block) if named_cells else ""
        draw_block(axes, xray, names, x, y, holders, text, small)
        if block == hit:
            frame(axes, x, y)
    bare(axes, wide, high)


def draw_tables(axes: Axes, xray: XRay, names: list[str], rows: list[str], wide: int) -> None:
    labels = labels_of(names)
    for place, name in enumerate(rows):
        y, table = len(rows) - 1 - place, xray.tables[name]
        label = name if labels[name] == name else f"{labels[name]}: {name}"
        axes.text(-0.2, y + 0.5, label, ha="right", va="center", fontsize=9)
        for index, block in enumerate(table[:wide]):
            holder = [(name, xray.filled(name, index))]
            draw_block(axes, xray, names, index, y, holder, str(block))
        if len(table) > wide:
            axes.text(wide + 0.1, y + 0.5, f"+{len(table) - wide}", va="center", fontsize=9)
        if xray.bad and xray.bad[0] == name and 0 <= xray.bad[1] // xray.block_size < wide:
            frame(axes, xray.bad[1] // xray.block_size, y)
    if len(xray.tables) > len(rows):
        more = f"and {len(xray.tables) - len(rows)} more"
        axes.text(0, -0.5, more, va="center", fontsize=9)
    bare(axes, wide, max(len(rows), 1), left=-3)


def frame(axes: Axes, x: float, y: float) -> None:
    """The mark of an invalid access."""
    axes.add_patch(Rectangle((x, y), 1, 1, fc="none", ec=VERMILLION, lw=3, clip_on=False, zorder=9))
    style = {"ha": "right", "va": "bottom", "color": VERMILLION, "fontweight": "bold"}
    axes.text(x + 0.95, y + 0.0, "!", fontsize=12, zorder=9, **style)


def bare(axes: Axes, wide: int, high: int, left: float = 0) -> None:
    axes.set(xlim=(left - 0.1, wide + 0.1), ylim=(-0.6 if left else -0.1, high + 0.1))
    axes.set_aspect("equal")
    axes.set_anchor("NW")
    axes.set_axis_off()


__all__ = ["XRay", "judged", "labels_of", "story_of", "xray_figure", "xray_of"]
