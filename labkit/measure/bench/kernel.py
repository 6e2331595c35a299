"""`bench kernel`: paged attention in Triton, the kernel language: errors, machine code, speed."""

import ast
import hashlib
import json
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from labkit.console import Stages
from labkit.measure.bench import arguments
from labkit.measure.bench.report import Column, Report, percent

SUMMARY = "paged attention in Triton (the kernel language): errors, machine code, speed on a GPU"
HELP = """\
Three tables about the kernels of labkit/kernels/gpu:

  errors   the largest difference to a softmax in float64, over random block tables with NaN in
           every slot that nobody owns; as a share of the result where that is above 1. On a GPU
           compiled, elsewhere by Triton's interpreter.
  needs    registers, spilled bytes and fast memory of every default configuration, compiled for
           compute capability 8.0, 8.6, 8.9 and 9.0, with or without a GPU (some four minutes;
           --no-needs leaves it out)
  speed    on a GPU only: a decode step over requests x context, in GB/s of the least that has to
           be moved, as a share of what the card reaches when it copies 1 GiB; beside it
           scaled_dot_product_attention and FlexAttention over keys and values gathered before

  python3 -m labkit bench kernel --json kernel.json
  python3 -m labkit bench kernel --no-needs --dtype float16"""
FORMULAS = [
    "bytes = context tokens * 2 * kv_heads * head_dim * itemsize + queries + results",
    "of copy = (bytes / median seconds) / (2 GiB / median seconds of copying 1 GiB)",
]
SHAPES = [(r, c) for r in (1, 4, 16, 64) for c in (1024, 4096, 16384)]
ERRORS = [
    Column("dtype", "dtype"),
    Column("head_dim", "head size"),
    *(Column(kind, kind, "{:.1e}") for kind in ("decode", "prefill", "mixed")),
]
NEEDS = [
    Column("kernel", "kernel"), Column("dtype", "dtype"), Column("head_dim", "head size"),
    Column("block_size", "block"), Column("group", "group"), Column("capability", "sm"),
    Column("registers", "registers"), Column("spilled", "spilled B"), Column("shared", "shared B"),
]  # fmt: skip
SPEED = [
    Column("requests", "requests"),
    Column("context", "context", "{:,}"),
    Column("ours_ms", "ms", "{:.3f}"),
    Column("bandwidth", "GB/s", lambda value: f"{value / 1e9:,.0f}"),
    Column("of_copy", "of copy", percent),
    Column("gather_ms", "gather ms", "{:.3f}"),
    Column("sdpa_ms", "SDPA ms", "{:.3f}"),
    Column("flex_ms", "Flex ms", "{:.3f}"),
]


def add_options(parser) -> None:
    parser.add_argument("--no-needs", action="store_true", help="don't compile for other GPUs")
    parser.add_argument(
        "--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16",
        help="of the speed table (default: bfloat16)",
    )  # fmt: skip
    for name, default in [("heads", 32), ("kv-heads", 8), ("head-dim", 128)]:
        parser.add_argument(
            f"--{name}", type=arguments.whole(1, 1024), default=default, metavar="N",
            help=f"of the speed table (default: {default}, an 8B Llama)",
        )  # fmt: skip


def contradiction(options: Namespace) -> str | None:
    if options.heads % options.kv_heads:
        return f"--heads {options.heads} is no multiple of --kv-heads {options.kv_heads}"
    return None


def run(options: Namespace, report: Report) -> None:
    """Prints the three tables, or says why there is none."""
    import torch

    try:
        import triton
    except ImportError:
        raise RuntimeError("triton is not installed; it is there for Linux only") from None
    on_gpu = torch.cuda.is_available()
    card = torch.cuda.get_device_name() if on_gpu else "none"
    report.header(
        FORMULAS, options.seed, gpu=card, triton=triton.__version__, sources=sources()
    )
    stages = Stages(2 + on_gpu - options.no_needs, sys.stderr)
    with stages.stage("errors") as tell:
        rows = [tell_row(row, tell) for row in errors(on_gpu)]
    report.table("errors", ERRORS, rows)
    if not options.no_needs:
        with stages.stage("needs, compiling") as tell:
            rows = [tell_row(row, tell) for row in needs()]
        report.table("needs", NEEDS, rows)
        spilling = [row for row in rows if row["spilled"]]
        report.note(f"{len(rows)} compiled configurations, {len(spilling)} of them spill.")
    if on_gpu:
        with stages.stage("speed") as tell:
            measure_speed(options, report, tell)
    else:
        report.note("There is no GPU here: nothing is said of speed. Errors are the interpreter's.")


def sources() -> str:
    """A name of the kernels and their sizes as they are now, words aside: twelve hex digits."""
    from labkit.kernels.gpu import launch, paged

    name = hashlib.sha256()
    for module in (launch, paged):
        tree = ast.parse(Path(module.__file__).read_bytes())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                node.body = node.body[bool(ast.get_docstring(node)) :]
        name.update(ast.dump(tree).encode())
    return name.hexdigest()[:12]


def tell_row(row: dict, tell) -> dict:
    tell(" ".join(str(value) for value in [*row.values()][:3]))
    return row


def errors(on_gpu: bool) -> Iterator[dict]:
    """Rows of the first table; where there is no GPU from a child that interprets."""
    from labkit.measure.bench import kernel_cases

    if on_gpu:
        yield from kernel_cases.errors("cuda")
    else:
        module = "labkit.measure.bench.kernel_cases"
        asked = json.dumps([kernel_cases.DTYPES, kernel_cases.HEAD_DIMS])
        yield from lines_of(module, kernel_cases.in_environment(interpret=True), asked)


def needs() -> Iterator[dict]:
    """Rows of the second table, from a child that compiles."""
    from labkit.kernels.gpu import compiled
    from labkit.measure.bench.kernel_cases import in_environment

    shapes = [*compiled.shapes()]
    asked = json.dumps([[*vars(shape).values()] for shape in shapes])
    variables = in_environment(interpret=False)
    for i, found in lines_of("labkit.kernels.gpu.compiled", variables, asked):
        yield vars(shapes[i]) | found


def lines_of(module: str, variables: dict[str, str], asked: str) -> Iterator:
    """What a module prints when it is run, line by line. RuntimeError when it fails."""
    with subprocess.Popen(
        [sys.executable, "-m", module], env=variables, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
    ) as child:  # fmt: skip
        child.stdin.write(asked)
        child.stdin.close()
        yield from map(json.loads, child.stdout)
        said = child.stderr.read()
    if child.returncode:
        raise RuntimeError(f"{module} failed: {said[-500:]}")


def measure_speed(options: Namespace, report: Report, tell) -> None:
    import torch

    from labkit.measure.bench import kernel_speed

    copy = kernel_speed.copy_bandwidth("cuda")
    found = kernel_speed.rows(
        SHAPES, options.heads, options.kv_heads, options.head_dim,
        getattr(torch, options.dtype), "cuda", copy,
    )  # fmt: skip
    report.table("speed", SPEED, [tell_row(row, tell) for row in found])
    report.keep(copy_bandwidth=copy)
    report.note(f"Copying 1 GiB: {copy / 1e9:,.0f} GB/s.")
