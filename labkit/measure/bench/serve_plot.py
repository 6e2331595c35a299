"""The picture of `bench serve`: how TTFT and ITL are distributed, and what throughput they cost.

Colours are of Okabe and Ito: colour-blind eyes tell them apart.
"""

import io
from collections.abc import Sequence
from pathlib import Path

from labkit.measure.bench.drive import percentile
from labkit.measure.bench.serve_rows import pairs_of, row
from labkit.measure.slo import SLO

INK = "#333333"
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000")
STYLES = ("-", "--", ":", "-.")
MARKS = ("o", "s", "^", "D", "v", "P", "X")
CURVES = (("TTFT", "ttft", 1.0, "s"), ("ITL", "itl", 1000.0, "ms"))


def save(file: Path, measured: Sequence, slo: SLO, about: str) -> None:
    """Draws the runs (`serve.Measured`) into `file`, whose suffix says how."""
    from matplotlib.figure import Figure

    servers = list(dict.fromkeys(one.who["server"] for one in measured))
    loads = list(dict.fromkeys(one.who["load"] for one in measured))
    several = len(loads) > 1
    figure = Figure(figsize=(10, 8.4 if several else 4.6), layout="constrained")
    axes = figure.subplots(2 if several else 1, 2, squeeze=False)
    limits = {
        "ttft": {"limit": slo.ttft},
        "itl": {"limit": slo.itl, "limit of the mean": slo.tpot},
    }
    for place, (title, key, scale, unit) in enumerate(CURVES):
        draw_shares(axes[0][place], measured, servers, loads, key, scale)
        axes[0][place].set(xlabel=f"{title} ({unit})", ylabel=f"at most this {title} (% of all)")
        for dots, (label, limit) in enumerate(limits[key].items(), start=1):
            if limit:
                mark = axes[0][place].axvline(scale * limit, color=INK, linewidth=1)
                mark.set(linestyle=(0, (dots, 3)), label=label)
        fit(axes[0][place])
        if several:
            draw_cost(axes[1][place], measured, servers, slo, key, scale)
            axes[1][place].set(xlabel="throughput (output tokens/s)", ylabel=f"{title} ({unit})")
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(colors=INK)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(frameon=False, fontsize=8)
    figure.suptitle(about, x=0.01, ha="left", fontsize=10, color=INK)
    picture = io.BytesIO()
    figure.savefig(picture, format=file.suffix[1:], dpi=150, facecolor="white")
    file.write_bytes(picture.getvalue())


def shares(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """The empirical distribution: values in order, and how many percent don't exceed each."""
    ordered = sorted(values)
    return [ordered[0], *ordered], [100 * i / len(ordered) for i in range(len(ordered) + 1)]


def draw_shares(axis, measured, servers, loads, key: str, scale: float) -> None:
    """A curve for each server and load. One server has a colour for each load; several have a
    colour each, and a line style for each load."""
    for one in measured:
        found = [answer.latency for _, answer in pairs_of(one.outcomes) if answer.latency]
        values = [
            scale * value
            for latency in found
            for value in (latency.itl if key == "itl" else [latency.ttft])
        ]
        if not values:
            continue
        server, load = servers.index(one.who["server"]), loads.index(one.who["load"])
        colour = COLOURS[(server if len(servers) > 1 else load) % len(COLOURS)]
        style = STYLES[(load if len(servers) > 1 else load // len(COLOURS)) % len(STYLES)]
        axis.plot(
            *shares(values), color=colour, linestyle=style, linewidth=1.6, drawstyle="steps-post",
            label=f"{one.who['server']}, {one.who['load']}",
        )  # fmt: skip
    axis.set_ylim(0, 102)
    axis.grid(axis="y", color="#DDDDDD", linewidth=0.6)


def fit(axis) -> None:
    """A logarithmic axis where values are far apart; without the least 1%, which may be 0."""
    from matplotlib.ticker import LogLocator, NullFormatter

    curves = [line.get_xdata() for line in axis.lines]
    least = min((percentile(values, 1) for values in curves), default=0)
    if least > 0 and max(values[-1] for values in curves) > 20 * least:
        axis.set_xscale("log")
        axis.set_xlim(left=least / 1.5)
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter(NullFormatter())


def draw_cost(axis, measured, servers, slo: SLO, key: str, scale: float) -> None:
    """Median and p99 over throughput: a point for each load, a line for each server."""
    for number, server in enumerate(servers):
        rows = [row(one.who, one.outcomes, slo) for one in measured if one.who["server"] == server]
        rows = [one for one in rows if one["tokens_per_s"] and one[f"{key}_p50_s"] is not None]
        x = [one["tokens_per_s"] for one in rows]
        for percent, style in ((50, "-"), (99, "--")):
            y = [scale * one[f"{key}_p{percent}_s"] for one in rows]
            axis.plot(
                x, y, color=COLOURS[number % len(COLOURS)], marker=MARKS[number % len(MARKS)],
                linestyle=style, markersize=5, label=f"{server}, p{percent}",
                markerfacecolor=None if percent == 50 else "white",
            )  # fmt: skip
            if percent == 99:
                for one, right, up in zip(rows, x, y, strict=True):
                    axis.annotate(
                        one["load"], (right, up), xytext=(0, 6), textcoords="offset points",
                        fontsize=7, color=INK, ha="center",
                    )  # fmt: skip
    axis.margins(y=0.12)  # room for the names of the loads
    axis.set_ylim(bottom=0)
    axis.grid(color="#DDDDDD", linewidth=0.6)
