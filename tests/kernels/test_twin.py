"""The kernels of the GPU on the NumPy twin of Triton's language: right, and their reads counted."""

import re
from types import ModuleType

import numpy as np
import pytest
from test_attention import Case

from labkit.kernels.gpu import twin
from labkit.workbook import cut, parts

tl = None  # of a notebook, in a test
PAGED = "labkit.kernels.gpu.paged"
NO_WINDOW = 2**30


@pytest.fixture(scope="module")
def paged():
    return twin.in_numpy(cut.module_from(PAGED, parts.module_source(PAGED)))


def sizes(case, **more):
    group = case.heads // case.kv_heads
    return {
        "KV_HEADS": case.kv_heads, "GROUP": group, "HEAD_DIM": case.dim, "DIM": case.dim,
        "BLOCK_SIZE": case.block_size, **more,
    }  # fmt: skip


def decode(paged, case, splits, tile=16, window=NO_WINDOW):
    """What the decode kernel writes, parts merged, and the trace of the first launch."""
    batch, n = case.batch, len(case.batch.query_lens)
    out, rows = np.zeros_like(case.q.numpy()), np.arange(n)
    maxima, totals = np.zeros((2, n, case.heads, splits), np.float32)
    acc = np.zeros((n, case.heads, splits, case.dim), np.float32)
    trace = paged.decode_kernel[n, case.kv_heads, splits](
        case.q.numpy(), case.cache.numpy(), rows, rows, batch.positions.numpy(),
        batch.block_tables.numpy(), out, maxima, totals, acc, batch.block_tables.stride(0),
        case.dim**-0.5, window, **sizes(case, ROWS=4, TILE=tile, SPLITS=splits),
    )  # fmt: skip
    if splits > 1:
        paged.merge_kernel[n, case.heads](
            rows, maxima, totals, acc, out,
            HEADS=case.heads, HEAD_DIM=case.dim, DIM=case.dim, SPLITS=splits,
        )  # fmt: skip
    return out, trace


@pytest.mark.parametrize("splits", [1, 2, 8])
@pytest.mark.parametrize("tile", [4, 16, 64])
def test_decoding_is_attention_and_reads_each_key_and_value_once(paged, splits, tile):
    lengths = [1, 16, 17, 100]
    case = Case([(n, 1) for n in lengths], heads=6, kv_heads=2, unused=float("nan"))
    out, trace = decode(paged, case, splits, tile)
    np.testing.assert_allclose(out, case.dense().numpy(), atol=1e-6)
    once = sum(lengths) * 2 * case.kv_heads * case.dim * 4
    assert trace.bytes_moved("kv") == trace.bytes_needed("kv") == once


def test_no_program_reads_a_block_of_another_request(paged):
    case = Case([(40, 1), (70, 1)], unused=float("nan"))
    _, trace = decode(paged, case, 2)
    per_block = case.cache[0].numel()
    for access in trace.of("kv"):
        request = access.program[0]
        num_blocks = -(-case.batch.context_lens[request] // case.block_size)
        own = case.batch.block_tables[request, :num_blocks].tolist()
        assert {*(access.offsets // per_block).tolist()} <= {*own}


def test_a_window_leaves_out_what_came_before_it(paged):
    case = Case([(70, 1)], unused=float("nan"))
    out, trace = decode(paged, case, 1, window=33)
    shorter = Case([(70, 1)])
    shorter.keys[0], shorter.values[0], shorter.q = case.keys[0][37:], case.values[0][37:], case.q
    shorter.batch.context_lens[0] = 33
    np.testing.assert_allclose(out, shorter.dense().numpy(), atol=1e-6)


def test_what_is_out_of_bounds_is_named(paged):
    case = Case([(20, 1)])
    case.batch.block_tables[0, 1] = 99
    with pytest.raises(twin.OutOfBounds, match=r"program \(0, 0, 0\) reads kv at .* it has \d+"):
        decode(paged, case, 1)


def test_shapes_are_powers_of_two_as_in_triton():
    with pytest.raises(ValueError, match="range is 12"):
        twin.arange(0, 12)


def test_a_mask_is_of_bools_as_in_triton():
    @twin.jit
    def kernel(x):
        twin.store(x + twin.arange(0, 2), 1, mask=twin.load(x + twin.arange(0, 2)))

    with pytest.raises(ValueError, match="Mask must have boolean scalar type"):
        kernel[1,](np.ones(2, np.int32))


REFUSED = {
    "unsupported tensor index: -1": lambda x: x[-1],
    "unsupported tensor index: slice": lambda x: x[1:],
    "there is tl.dot": lambda x: x @ x,
    "it has .to": lambda x: x.astype(np.float16),
    "no tl.tanh; it has arange": lambda x: twin.tanh(x),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_numpy_can_and_triton_cannot_is_refused(why):
    with pytest.raises((AttributeError, TypeError, ValueError), match=re.escape(why)):
        REFUSED[why](twin.tensor([1.0, 2.0]))


def test_names_and_options_of_triton_are_there():
    x = twin.tensor(np.float32([[1, 2], [4, 8]]))
    assert twin.max(x).item() == x.max().item() == 8
    assert twin.sum(x, axis=1, keep_dims=True).shape == x.sum(1, keep_dims=True).shape == (2, 1)
    assert twin.min(x, 0).tolist() == [1, 2]
    assert twin.math.log2(x).tolist() == twin.log2(x).tolist() == [[0, 1], [2, 3]]
    assert twin.expand_dims(x, 1).shape == (2, 1, 2)
    assert x.trans().tolist() == [[1, 4], [2, 8]]
    assert twin.cast(x, twin.float16).dtype == np.float16
    assert twin.dot(x, x, allow_tf32=False, out_dtype=twin.float32)[None].shape == (1, 2, 2)
    assert [*twin.range(0, twin.tensor(2), num_stages=2)] == [0, 1]
    assert str(x) == repr(x) == "[[1. 2.]\n [4. 8.]]"


def test_every_name_that_the_twin_tells_is_there_and_is_triton_s():
    names = twin.NAMES.split()
    assert all(hasattr(twin, name) for name in names)
    language = pytest.importorskip("triton.language", reason="triton is there on Linux only")
    assert all(hasattr(language, name) for name in names)


def test_a_kernel_of_the_twin_runs_after_its_cells_have_imported_triton(monkeypatch):
    other = ModuleType("triton.language")
    monkeypatch.setitem(globals(), "tl", other)

    @twin.jit
    def kernel(x):
        tl.store(x + tl.arange(0, 2), 7)

    x = np.zeros(2)
    kernel[1,](x)
    assert x.tolist() == [7, 7]
    assert globals()["tl"] is other
