"""Draws two grids of cells, expected and found, and marks where they differ.

A grid is `{row: {column: (text, fill)}}`; `fill` is "none", "some" or "preempted". A mark has a
colour and a shape: dashed and blue what was expected there, thick and vermillion with a corner
what was found, "–" where there is nothing.
"""

from matplotlib.patches import Polygon, Rectangle

from labkit.workbook.plots import BLUE, GREY, PURPLE, SKY, VERMILLION, Picture, house_style

WIDTH, CELL_HEIGHT, MARGIN = 7.5, 0.3, 0.1  # inches
HEAD, FOOT, TITLE = 0.52, 0.34, 0.36
MOST_ROWS = 12
NOTHING = ("–", "none")
OUR_OWN = "–…▶·"  # characters beside ASCII


@house_style()
def draw(name, axes, columns, expected, found, said) -> Picture:
    """The picture. `axes` are what rows and columns are called, `columns` the columns' names.

    `found` is None when what was found is no such grid; `said` is what it was instead.
    """
    rows = [*expected, *(row for row in found or {} if row not in expected)]
    width = max([c + 1 for grid in (expected, found or {}) for row in grid.values() for c in row],
                default=1)  # fmt: skip
    wrong = differences(rows, width, expected, found)
    window = Window(rows, columns[:width], wrong[:1], (expected, found or {}))
    figure = Sheet(window, {*wrong}, len(wrong))
    figure.panel("expected", expected, window.begin)
    figure.panel("found", found, window.second, said)
    picture = figure.finish(f"{name}: expected and found", axes)
    picture.story = story(name, axes, wrong, expected, found, said)
    return picture


def differences(rows, width, expected, found) -> list[tuple[str, int]]:
    """The cells that differ, by rows; all that are expected when nothing like it was found."""
    if found is None:
        return [(row, column) for row in expected for column in sorted(expected[row])]
    return [
        (row, column)
        for row in rows
        for column in range(width)
        if expected.get(row, {}).get(column) != found.get(row, {}).get(column)
    ]


def story(name, axes, wrong, expected, found, said) -> str:
    """The first difference in words, and how many there are."""
    if found is None:
        return f"{name}: {said} found; this can't be drawn beside what was expected."
    if not wrong:
        return f"{name}: no difference in what is drawn."
    row, column = wrong[0]
    told = [grid.get(row, {}).get(column, ("nothing", ""))[0] for grid in (expected, found)]
    count = "1 cell differs" if len(wrong) == 1 else f"{len(wrong)} cells differ"
    where = f"{axes[0]} {row}, {axes[1]} {column}"
    return f"{name}: {where}: {told[0]} expected, {told[1]} found; {count}."


class Window:
    """Which rows and columns are shown, and where the two panels stand: inches from the left."""

    def __init__(self, rows, columns, first, grids):
        texts = [text for grid in grids for row in grid.values() for text, _ in row.values()]
        longest = max([1, *map(len, texts), *map(len, columns)])
        self.cell = max(0.36, 0.1 * longest + 0.12)
        self.label = 0.14 + 0.09 * min(max([1, *map(len, rows)]), 14)
        fit = max(int((WIDTH - 2 * MARGIN - self.label) / self.cell), 1)
        row, column = (rows.index(first[0][0]), first[0][1]) if first else (0, 0)
        self.rows, self.hidden_rows = cut(rows, row, MOST_ROWS)
        self.columns, self.hidden_columns = cut(list(enumerate(columns)), column, fit)
        self.width = self.label + self.cell * len(self.columns)
        self.height = HEAD + CELL_HEIGHT * max(len(self.rows), 1)
        self.begin = (MARGIN, TITLE)
        beside = 2 * self.width + 4 * MARGIN <= WIDTH - 2 * MARGIN
        self.second = (MARGIN + self.width + 4 * MARGIN, TITLE) if beside else (
            MARGIN, TITLE + self.height + MARGIN
        )  # fmt: skip
        self.bottom = self.second[1] + self.height


def cut(items: list, wanted: int, most: int) -> tuple[list, int]:
    """At most `most` items, number `wanted` among them, and how many are left out."""
    begin = 0 if wanted < most else min(wanted - most // 2, len(items) - most)
    shown = items[begin : begin + most]
    return shown, len(items) - len(shown)


class Sheet:
    """The paper: one pair of axes in inches, y downwards."""

    def __init__(self, window: Window, wrong: set, num_wrong: int):
        self.window, self.wrong, self.num_wrong = window, wrong, num_wrong
        self.size = (WIDTH, window.bottom + FOOT + 2 * MARGIN)
        self.picture = Picture(figsize=self.size)
        self.axes = self.picture.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(self.size[1], 0))
        self.axes.set_axis_off()
        self.marked_preempted = False

    def text(self, x, y, text, **options):
        options = {"va": "center", "ha": "center", "fontsize": 9.5} | options
        text = "".join(c if c.isascii() or c in OUR_OWN else "□" for c in text)  # has the font it?
        self.axes.text(x, y, text.replace("$", r"\$"), **options)

    def box(self, x, y, width, height, **options):
        self.axes.add_patch(Rectangle((x, y), width, height, **options))

    def panel(self, name: str, grid, begin, said: str = "") -> None:
        (x, y), window = begin, self.window
        self.text(x, y + 0.1, name, ha="left", weight="bold")
        if grid is None:
            self.text(x + 0.2, y + HEAD + CELL_HEIGHT / 2, f"▶ {said}", ha="left", color=VERMILLION)
            return
        for place, (_, column) in enumerate(window.columns):
            middle = x + window.label + window.cell * (place + 0.5)
            self.text(middle, y + HEAD - 0.14, column, fontsize=8)
        for place, row in enumerate(window.rows):
            top = y + HEAD + CELL_HEIGHT * place
            label = row if len(row) <= 14 else row[:13] + "…"
            right = x + window.label - 0.08
            self.text(right, top + CELL_HEIGHT / 2, label, ha="right", fontsize=8)
            for number, (column, _) in enumerate(window.columns):
                left = x + window.label + window.cell * number
                self.cell(name, (row, column), grid.get(row, {}).get(column), left, top)

    def cell(self, name: str, key, value, left: float, top: float) -> None:
        is_wrong = key in self.wrong
        if value is None and not is_wrong:
            return
        text, fill = value or NOTHING
        wide, high = self.window.cell, CELL_HEIGHT
        if fill == "preempted":
            self.marked_preempted = True
            self.box(left, top, wide, high, fc=PURPLE, ec=PURPLE, alpha=0.35, hatch="///", lw=0)
        elif fill == "some":
            self.box(left, top, wide, high, fc=SKY, alpha=0.22, lw=0)
        self.box(left, top, wide, high, fill=False, ec=GREY, lw=0.6)
        colour = GREY
        if is_wrong:
            colour = BLUE if name == "expected" else VERMILLION
            self.mark(name, left, top, wide)
        self.text(left + wide / 2, top + high / 2, text, color=colour,
                  weight="bold" if is_wrong else "normal")  # fmt: skip

    def mark(self, name: str, left: float, top: float, wide: float) -> None:
        inset, high = 0.03, CELL_HEIGHT
        inner = (left + inset, top + inset, wide - 2 * inset, high - 2 * inset)
        if name == "expected":
            self.box(*inner, fill=False, ec=BLUE, lw=1.6, ls=(0, (3, 1.5)))
            return
        self.box(*inner, fill=False, ec=VERMILLION, lw=2.2)
        right, size = left + wide - inset, 0.1
        corner = [(right - size, top + inset), (right, top + inset), (right, top + inset + size)]
        self.axes.add_patch(Polygon(corner, closed=True, fc=VERMILLION, lw=0))

    def finish(self, title: str, names: tuple[str, str]) -> Picture:
        window, y = self.window, self.window.bottom + MARGIN + FOOT / 2
        self.text(MARGIN, 0.17, title, ha="left", fontsize=12, weight="bold")
        x, wide = MARGIN, 0.3
        keys = [("expected", "expected there"), ("found", "found there")] if self.wrong else []
        for name, what in keys:
            self.mark(name, x, y - CELL_HEIGHT / 2, wide)
            self.text(x + wide + 0.07, y, what, ha="left", fontsize=8.5)
            x += wide + 0.2 + 0.075 * len(what)
        words = [f"down: {names[0]}, across: {names[1]}"]
        if self.marked_preempted:
            words.append("P hatched: preempted")
        hidden = [(window.hidden_rows, names[0]), (window.hidden_columns, names[1])]
        words += [f"{count} more {plural(count, what)}" for count, what in hidden if count]
        self.text(x + 0.1 * bool(keys), y, " · ".join(words), ha="left", fontsize=8.5)
        return self.picture


def plural(count: int, what: str) -> str:
    if count == 1:
        return what
    return what[:-1] + "ies" if what.endswith("y") else what + "s"
