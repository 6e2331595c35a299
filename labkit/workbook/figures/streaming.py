"""The figures of notebook 01: what a client sees and when, ITL by position, work counted."""

from collections.abc import Callable, Mapping, Sequence

from labkit.measure.generation import Delivery
from labkit.workbook.plots import (
    BLUE,
    GREY,
    ORANGE,
    Picture,
    house_style,
    new_picture,
    plain_number,
)


@house_style()
def delivery_figure(streamed: Delivery, unstreamed: Delivery) -> Picture:
    """Characters on the client's screen over time, for the same answer sent in two ways."""
    picture, axes = new_picture(
        "The same answer, streamed and not (measured)",
        "seconds since the request arrived",
        "characters seen",
    )
    for seen, name, colour, style in (
        (streamed, "streamed", BLUE, "-"),
        (unstreamed, "sent at the end", ORANGE, "--"),
    ):
        times, lengths = [0.0], [0]
        for when, piece in seen.pieces:
            times.append(when - seen.arrival)
            lengths.append(lengths[-1] + len(piece))
        axes.step(times, lengths, style, where="post", color=colour, label=name)
        axes.plot(times[-1], lengths[-1], "o", color=colour)
    axes.legend(loc="upper left")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    picture.story = (
        f"First text after {streamed.first_text:.2f} s streamed, "
        f"{unstreamed.first_text:.2f} s not; "
        f"all of it after {streamed.last_text:.2f} s and {unstreamed.last_text:.2f} s."
    )
    return picture


@house_style()
def itl_figure(positions: Sequence[int], seconds: Sequence[float]) -> Picture:
    """How long one token takes against how many stand before it."""
    picture, axes = new_picture(
        "One more token, without a cache (measured)",
        "tokens in the sequence",
        "milliseconds per token (ITL)",
    )
    times = [1e3 * s for s in seconds]
    axes.plot(positions, times, "o-", color=BLUE, label="use_cache=False")
    axes.axhline(times[0], color=GREY, linestyle=":", label=f"as after {positions[0]} tokens")
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter(plain_number)
    axes.legend(loc="upper left")
    picture.story = (
        f"A token takes {times[0]:.0f} ms after {positions[0]} tokens and {times[-1]:.0f} ms "
        f"after {positions[-1]}: {times[-1] / times[0]:.1f} times as long."
    )
    return picture


@house_style()
def work_figure(
    token_forwards: Callable[[int, int, bool], int],
    num_prompt_tokens: int,
    counted: Mapping[tuple[int, bool], int],
) -> Picture:
    """Tokens through the model over output length: lines by formula, marks as counted.

    `token_forwards(num_prompt_tokens, num_output_tokens, use_cache)` is the formula.
    `counted` is {(number of output tokens, whether a cache was used): tokens counted}.
    """
    picture, axes = new_picture(
        f"Tokens through the model, prompt of {num_prompt_tokens} (counted)",
        "output tokens",
        "tokens computed (logarithmic)",
    )
    longest = max(num_tokens for num_tokens, _ in counted)
    lengths = range(1, longest + 1)
    for use_cache, colour, marker, style in ((False, ORANGE, "s", "-"), (True, BLUE, "o", "--")):
        name = f"use_cache={use_cache}"
        work = [token_forwards(num_prompt_tokens, n, use_cache) for n in lengths]
        axes.plot(lengths, work, style, color=colour, label=f"{name}, formula")
        marks = {n: tokens for (n, cached), tokens in counted.items() if cached == use_cache}
        axes.plot(marks.keys(), marks.values(), marker, color=colour, label=f"{name}, counted")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(plain_number)
    axes.legend(loc="upper left", ncols=2)
    axes.set_ylim(top=axes.get_ylim()[1] * 4)
    ratio = counted[longest, False] / counted[longest, True]
    picture.story = (
        f"For {longest} output tokens, {counted[longest, False]:,} tokens went through the model "
        f"without a cache and {counted[longest, True]:,} with one: {ratio:.0f} times as many."
    )
    return picture
