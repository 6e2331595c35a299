"""The kernels in Triton, the kernel language: on a GPU compiled, elsewhere by its interpreter."""

import pytest
import torch
from test_attention import Case

pytest.importorskip("triton", reason="triton is there on Linux only")

from labkit.kernels.gpu import interpreted, launch  # noqa: E402
from labkit.kernels.gpu.launch import TritonAttention, write  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    interpreted.mend_products()
# Largest error allowed against float64, for results of size 1: two places in the last bit of the
# weights and of the result (float16 has 11 bits, bfloat16 has 8).
TOLERANCES = {torch.float32: 2e-6, torch.float16: 2**-9, torch.bfloat16: 2**-6}
RAGGED = [(1, 1), (37, 5), (16, 1), (17, 17), (33, 1), (64, 64), (65, 2), (15, 15), (129, 1)]


class OnDevice(Case):
    """A case of `test_attention` whose numbers are of `dtype` and on the device under test."""

    def __init__(self, lengths, dtype=torch.float32, **options):
        super().__init__(lengths, unused=float("nan"), **options)
        self.dtype = dtype
        self.q, self.cache = self.q.to(dtype), self.cache.to(dtype)
        self.keys = [keys.to(dtype) for keys in self.keys]
        self.values = [values.to(dtype) for values in self.values]
        for name in ("token_ids", "positions", "slot_mapping", "block_tables", "query_start"):
            setattr(self.batch, name, getattr(self.batch, name).to(DEVICE))

    def error(self, window=None) -> float:
        """The largest difference to the definition in float64; of large results their share."""
        attention = TritonAttention(self.batch, window)
        out = attention(self.q.to(DEVICE), self.cache.to(DEVICE))
        assert out.dtype == self.dtype and out.shape == self.q.shape
        wanted = self.dense(window).double()
        return ((out.cpu().double() - wanted).abs() / wanted.abs().clamp(min=1)).max().item()


@pytest.mark.parametrize("dtype", TOLERANCES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128])
def test_every_dtype_and_head_size_agrees_with_float64(dtype, head_dim):
    case = OnDevice(RAGGED, dtype, heads=6, kv_heads=2, dim=head_dim)
    assert case.error() < TOLERANCES[dtype]


@pytest.mark.parametrize("block_size", [8, 16, 32, 64, 128])
def test_every_block_size_up_to_and_around_its_boundaries(block_size):
    edges = [block_size - 1, block_size, block_size + 1, 2 * block_size]
    lengths = [(n, 1) for n in edges] + [(n, n) for n in edges] + [(n, 2) for n in edges]
    assert OnDevice(lengths, block_size=block_size).error() < TOLERANCES[torch.float32]


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 4), (3, 1), (9, 3), (14, 2), (32, 1)])
def test_any_group_of_query_heads(heads, kv_heads):
    case = OnDevice([(40, 1), (40, 7), (1, 1)], heads=heads, kv_heads=kv_heads)
    assert case.error() < TOLERANCES[torch.float32]


@pytest.mark.parametrize("length", [1, 63, 64, 255, 700, 1025])
def test_a_long_context_is_split_over_programs_and_merged(length):
    case = OnDevice([(length, 1)], heads=3, kv_heads=1, dim=64)
    assert case.error() < TOLERANCES[torch.float32]


def test_how_many_parts_follows_from_shapes_alone():
    assert launch.splits_for(programs=1, tiles=100, processors=132) == 16  # 25 parts of 4 tiles
    assert launch.splits_for(programs=1, tiles=3, processors=132) == 1
    assert launch.splits_for(programs=600, tiles=1000, processors=132) == 1
    assert launch.splits_for(programs=24, tiles=1000, processors=132) == 16


@pytest.mark.parametrize("window", [1, 16, 33, 64, 1000])
def test_a_sliding_window_hides_what_is_before_it(window):
    assert OnDevice(RAGGED).error(window) < TOLERANCES[torch.float32]


@pytest.mark.parametrize("dtype", TOLERANCES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_keys_and_values_are_written_to_their_slots_and_nowhere_else(dtype):
    kv = torch.full((5, 2, 3, 8, 20), float("nan"), dtype=dtype, device=DEVICE)
    new = torch.arange(3 * 6 * 20, dtype=torch.float32).view(3, 6, 20).to(DEVICE)
    slots = [9, 39, 0]
    write(kv, torch.tensor(slots, device=DEVICE), new)
    written = kv.transpose(2, 3).transpose(1, 2).reshape(40, 6, 20)  # a row for each slot
    assert torch.equal(written[slots], new.to(dtype))
    others = [slot for slot in range(40) if slot not in slots]
    assert written[others].isnan().all()
