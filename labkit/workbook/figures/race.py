"""Text that appears in several lanes at once: who shows the first word, and who ends first."""

from collections.abc import Mapping, Sequence

from labkit.workbook.figures.batches import span
from labkit.workbook.plots import COLOURS, MARKERS, Picture, house_style, new_picture

Lanes = Mapping[str, Sequence[tuple[float, str]]]  # name → (seconds since the start, text)
STYLES = ("-", "--", "-.", ":")


def text_at(lanes: Lanes, seconds: float) -> dict[str, str]:
    """What stands in each lane after so many seconds."""
    return {
        name: "".join(piece for when, piece in sorted_pieces(pieces) if when <= seconds)
        for name, pieces in lanes.items()
    }


def sorted_pieces(pieces: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """In order of time; pieces of one time stay in theirs."""
    return sorted(pieces, key=lambda piece: piece[0])


def last_second(lanes: Lanes) -> float:
    """When the last lane has all its text; 0 without any."""
    return max((when for pieces in lanes.values() for when, _ in pieces), default=0.0)


def story_of(lanes: Lanes) -> str:
    """First and last text of each lane."""
    told = []
    for name, pieces in lanes.items():
        texts = [(when, piece) for when, piece in sorted_pieces(pieces) if piece]
        told.append(
            f"{name}: first text after {span(texts[0][0])}, all {sum(len(t) for _, t in texts)} "
            f"characters after {span(texts[-1][0])}"
            if texts
            else f"{name}: no text"
        )
    return "; ".join(told) + "."


@house_style()
def race_figure(lanes: Lanes, title: str, until: float | None = None) -> Picture:
    """Characters seen over time, a line for each lane; `until` so many seconds only."""
    picture, axes = new_picture(title, "seconds since the start", "characters seen", width=8.5)
    end = last_second(lanes) if until is None else until
    longest = max((sum(len(t) for _, t in pieces) for pieces in lanes.values()), default=1)
    for place, (name, pieces) in enumerate(lanes.items()):
        times, lengths = [0.0], [0]
        for when, piece in sorted_pieces(pieces):
            if when <= end:
                times.append(when)
                lengths.append(lengths[-1] + len(piece))
        colour, style = COLOURS[place % len(COLOURS)], STYLES[place % len(STYLES)]
        axes.step([*times, end], [*lengths, lengths[-1]], style, where="post", color=colour)
        marker = MARKERS[place % len(MARKERS)]
        axes.plot(times[1:2], lengths[1:2], marker, mfc="none", color=colour, mew=2)
        axes.plot(times[-1], lengths[-1], marker, color=colour)
        axes.plot([], [], style, marker=marker, color=colour, label=name)
    axes.set(xlim=(0, 1.02 * (last_second(lanes) or 1)), ylim=(0, 1.08 * (longest or 1)))
    if lanes:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=9)
    picture.story = story_of(lanes)
    return picture
