"""The kernels compiled for GPUs that aren't there: machine code without spills, within limits."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="triton is there on Linux only")

from labkit.kernels.gpu import compiled, launch  # noqa: E402
from labkit.kernels.gpu.compiled import KERNELS, SHARED_LIMIT, Needs, Shape  # noqa: E402

SHAPES = [Shape(kernel, "bfloat16", 64) for kernel in KERNELS] + [
    Shape("decode", "float32", 128), Shape("prefill", "float32", 128),
    Shape("prefill", "bfloat16", 128, group=8), Shape("decode split", "float16", 80, block_size=8),
    Shape("prefill", "float16", 96, block_size=128), Shape("write", "float32", 80),
]  # fmt: skip


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What SHAPES need on every kind of GPU, from a process that compiles and doesn't interpret."""
    variables = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    variables["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    asked = json.dumps([[*vars(shape).values()] for shape in SHAPES])
    done = subprocess.run(
        [sys.executable, "-m", "labkit.kernels.gpu.compiled"], input=asked, env=variables,
        capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {(i, need["capability"]): Needs(**need) for i, need in rows}


@pytest.mark.parametrize("capability", SHARED_LIMIT)
@pytest.mark.parametrize("i", range(len(SHAPES)), ids=lambda i: "-".join(map(str, vars(SHAPES[i]).values())))  # fmt: skip  # noqa: E501
def test_a_default_configuration_fits_and_spills_nothing(told, i, capability):
    found = told[i, capability]
    assert found.spilled == 0
    assert 0 < found.registers <= 255
    assert found.shared <= 1024 * SHARED_LIMIT[capability]


def test_a_configuration_that_is_too_large_would_be_seen(monkeypatch):
    """The numbers are read from the machine code: this one has no registers left."""
    script = (
        "from labkit.kernels.gpu import compiled, launch\n"
        "launch.prefill_sizes = lambda *_: launch.Sizes(64, 64, num_warps=4, num_stages=2)\n"
        "print(compiled.needs(compiled.Shape('prefill', 'float32', 64), 80).spilled)\n"
    )
    variables = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=variables, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 100


def test_what_is_compiled_is_what_is_launched():
    sizes = launch.decode_sizes(2, 64, 3)
    _, _, constants, num_warps, num_stages = compiled.specification(Shape("decode", "float16", 64))
    assert (constants["TILE"], constants["ROWS"]) == (sizes.tile, sizes.rows)
    assert (num_warps, num_stages) == (sizes.num_warps, sizes.num_stages)
    assert len({*compiled.shapes()}) == len([*compiled.shapes()])
