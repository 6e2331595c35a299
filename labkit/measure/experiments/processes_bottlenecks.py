"""Six causes of a device that does little, one at a time: `bench bottleneck` at the size of a
notebook. The device is paced (modelled); API, tokenizer, scheduler and messages are real."""

import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from labkit.measure.bench import bottleneck, bottleneck_load, bottleneck_rows, paced_devices
from labkit.measure.experiments.processes_http import run_beside, servers
from labkit.measure.simulate import cards

CARD = "H100:8b"  # reads 15 GB of weights in 4.5 ms a step


def options_of(
    clients: int, long_tokens: int, seconds: float, causes: Sequence[str], model: str
) -> Namespace:
    """What `bench bottleneck` is told."""
    return Namespace(
        model=model, device=paced_devices.sized(CARD), causes=list(causes), clients=clients,
        long_tokens=long_tokens, seconds=seconds, seed=0,
    )  # fmt: skip


def compare_causes(
    clients: int = 24,
    long_tokens: int = 5000,
    seconds: float = 1.3,
    causes: Sequence[str] = bottleneck.CAUSES,
    model: str = "smollm2-135m",
    tell: Callable[[str], object] = lambda text: None,
) -> list[dict]:
    """A row of `bench bottleneck` for the baseline and each cause: so many clients in a closed
    loop, `seconds` each. Cases that need the same server share one; all start at once."""
    from labkit.serving.text import TextSide

    options, text = options_of(clients, long_tokens, seconds, causes, model), TextSide.load(model)
    cases, rows = bottleneck.cases(options), []
    with TemporaryDirectory(prefix="labkit-") as folder:
        told = {}
        for case in cases:
            device = options.device.server_options(model, Path(folder), case.host_bandwidth)
            told[server_of(case)] = (
                "process", [*device, *bottleneck.baseline_options(options), *case.options]
            )  # fmt: skip
        with servers(told) as running:
            for case in cases:
                began = time.monotonic()
                prompts = bottleneck.Prompts(case.long, options, text)
                server = running[server_of(case)]
                run_beside(fill(server.port, prompts.first()))
                seen = run_beside(
                    bottleneck_load.play(server, prompts.next, options.clients, seconds)
                )
                who = {"cause": case.cause, "switch": case.switch, "label": "modelled"}
                flops = 2 * options.device.size.num_params
                peak = cards.card_named(options.device.place).flops
                rows.append(bottleneck_rows.row(who, seen, flops, peak))
                tell(f"{case.cause}: {time.monotonic() - began:.1f} s")
    return rows


def server_of(case: bottleneck.Case) -> str:
    """The name of the server that a case needs."""
    return case.cause if case.options else "baseline"


async def fill(port: int, asked: Sequence) -> None:
    """The prefix cache gets the long beginnings: all at once, unlike the benchmark's."""
    import asyncio

    await asyncio.gather(*(bottleneck_load.fill(port, [one]) for one in asked))


COLUMNS = (
    ("busy", "busy", lambda x: f"{x:.0%}"),
    ("tokens/s", "tokens_per_s", lambda x: f"{x:,.0f}"),
    ("per step", "tokens_per_step", lambda x: f"{x:.1f}"),
    ("step ms", "step_s", lambda x: f"{1e3 * x:.1f}"),
    ("queue ms", "queue_p50_s", lambda x: f"{1e3 * x:,.0f}"),
    ("TTFT ms", "ttft_p50_s", lambda x: f"{1e3 * x:,.0f}"),
    ("KV peak", "kv_peak", lambda x: f"{x:.0%}"),
    ("API core", "api_cpu", lambda x: f"{x:.0%}"),
)


def table(rows: Sequence[dict]) -> str:
    """The rows as lines of text."""
    lines = [f"{'cause':12}" + "".join(f"  {title}" for title, *_ in COLUMNS)]
    for row in rows:
        cells = (
            ("-" if row[key] is None else show(row[key])).rjust(len(title) + 2)
            for title, key, show in COLUMNS
        )
        lines.append(f"{row['cause']:12}" + "".join(cells))
    return "\n".join(lines)
