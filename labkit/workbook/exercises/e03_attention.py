"""Notebook 03, attention with a cache: `attend`."""

from labkit.workbook.drawings import rows
from labkit.workbook.registry import Case, Exercise, Mistake


def _plain(tensor):
    """Numbers to four digits after the point, as lists; NaN as a word, which equals itself."""
    if tensor.dim():
        return [_plain(row) for row in tensor]
    number = float(tensor)
    return round(number, 4) if number == number else "nan"


def _weights(n, start):
    """How much each query takes of each position. All scores are 0 and the values one-hot, so a
    query's output is its row of weights."""

    def observe(part):
        import torch

        total = start + n
        q = torch.zeros(n, 1, total)
        kv = torch.stack([torch.zeros(1, total, total), torch.eye(total).unsqueeze(0)])
        out = part.attend(q, kv, start)
        return {"shape": list(out.shape), "weights": _plain(out.flatten(0, -2))}

    return observe


def _even(n, start, weights):
    return {"shape": [n, 1, start + n], "weights": weights}


def _scored(part):
    """Two positions, head_dim 4: q · k is 4 ln 2 for the second, 2 ln 2 after the scaling."""
    import torch

    q, kv = torch.zeros(1, 1, 4), torch.zeros(2, 1, 2, 4)
    q[..., 0], kv[0, 0, 1, 0] = 4.0, 0.6931471805599453  # ln 2
    kv[1, 0, 0, 0], kv[1, 0, 1, 1] = 1.0, 1.0
    return _plain(part.attend(q, kv, 1)[0, 0, :2])


def _large(part):
    """Two tokens. The second key scores 200 with both queries, and only the second sees it."""
    import torch

    q, kv = torch.zeros(2, 1, 4), torch.zeros(2, 1, 2, 4)
    q[..., 0], kv[0, 0, 1, 0] = 20.0, 20.0
    kv[1, 0, 0, 0], kv[1, 0, 1, 1] = 1.0, 1.0
    return {"weights": _plain(part.attend(q, kv, 0)[:, 0, :2])}


def _heads(part):
    """Six query heads over two kv heads; the values of kv head j are j + 1 at every position."""
    import torch

    q, kv = torch.zeros(1, 6, 2), torch.zeros(2, 2, 3, 2)
    kv[1, 0], kv[1, 1] = 1.0, 2.0
    out = part.attend(q, kv, 2)
    return {"shape": list(out.shape), "kv head of each head": _plain(out[0, :, 0] - 1)}


def small_integers():
    """q `[2, 4, 2]` and kv `[2, 2, 4, 2]`: two new tokens after two cached ones, from -1 to 2."""
    import torch

    q = torch.arange(16).mul(5).remainder(11).remainder(4).sub(1).reshape(2, 4, 2)
    kv = torch.arange(32).mul(5).remainder(7).remainder(4).sub(1).reshape(2, 2, 4, 2)
    return q.float(), kv.float()


def _all_of_it(part):
    return _plain(part.attend(*small_integers(), 2))


def _cache_kept(part):
    q, kv = small_integers()
    before = kv.clone()
    part.attend(q, kv, 2)
    return {"kv changed": not kv.equal(before)}


def _bfloat16(part):
    """As `_heads`, in the numbers that models are served in."""
    import torch

    q, kv = torch.zeros(2, 4, 2).bfloat16(), torch.zeros(2, 2, 3, 2).bfloat16()
    kv[1, 0], kv[1, 1] = 1.0, 2.0
    out = part.attend(q, kv, 1)
    return {"dtype": str(out.dtype), "kv head of each head": _plain(out[0, :, 0].round() - 1)}


def _elsewhere(part):
    from labkit.workbook.fakes import mixes_devices

    q, kv = (tensor.to("meta") for tensor in small_integers())
    return {"tensors on another device": mixes_devices(lambda: part.attend(q, kv, 2))}


def _draw(expected, found):
    return rows(expected["weights"], found["weights"], name="weights")


# By `eager_attention_forward` of transformers 5.24 on the same numbers in float64.
FROM_TRANSFORMERS = [
    [[1.7337, -0.2663], [1.0565, -0.9435], [-0.3272, 0.8364], [-0.5989, 0.5989]],
    [[0.8476, -0.5044], [0.7179, 0.0], [-0.2242, 0.6698], [0.1698, 0.3302]],
]

SCALED = """\
    out = F.scaled_dot_product_attention(
        queries, keys, values, attn_mask=sees, is_causal=start == 0, enable_gqa=True
    )"""
WITH_EXP = """\
    group = q.shape[1] // kv.shape[1]
    scores = queries @ keys.repeat_interleave(group, 1).mT / q.shape[2] ** 0.5
    weights = scores.exp() * causal_mask(len(q), start, q.device)
    out = weights / weights.sum(-1, keepdim=True) @ values.repeat_interleave(group, 1)"""

ATTEND = Exercise(
    id="03.2",
    module="labkit.kernels.reference",
    symbol="attend",
    core=True,
    minutes=30,
    difficulty=2,
    cases=(
        Case("alone", _weights(1, 0), _even(1, 0, [[1.0]]), _draw),
        Case(
            "prompt",
            _weights(3, 0),
            _even(3, 0, [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.3333, 0.3333, 0.3333]]),
            _draw,
        ),
        Case("decode", _weights(1, 3), _even(1, 3, [[0.25, 0.25, 0.25, 0.25]]), _draw),
        Case(
            "chunk",
            _weights(2, 1),
            _even(2, 1, [[0.5, 0.5, 0.0], [0.3333, 0.3333, 0.3333]]),
            _draw,
        ),
        Case("scores", _scored, [0.2, 0.8]),  # exp(0) : exp(2 ln 2) = 1 : 4
        Case(
            "heads",
            _heads,
            {"shape": [1, 6, 2], "kv head of each head": [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]},
        ),
        Case("all_of_it", _all_of_it, FROM_TRANSFORMERS),
        Case("large_scores", _large, {"weights": [[1.0, 0.0], [0.0, 1.0]]}, _draw),
        Case(
            "bfloat16",
            _bfloat16,
            {"dtype": "torch.bfloat16", "kv head of each head": [0.0, 0.0, 1.0, 1.0]},
        ),
        Case("device", _elsewhere, {"tensors on another device": False}),
        Case("cache_kept", _cache_kept, {"kv changed": False}),
    ),
    mistakes=(
        Mistake(
            "top_left",
            (
                ("None if start == 0 else causal_mask(len(q), start, q.device)", "None"),
                ("is_causal=start == 0", "is_causal=True"),
            ),
        ),
        Mistake(
            "no_mask",
            (
                ("None if start == 0 else causal_mask(len(q), start, q.device)", "None"),
                ("is_causal=start == 0", "is_causal=False"),
            ),
        ),
        Mistake("no_mask_in_prefill", (("is_causal=start == 0", "is_causal=False"),)),
        Mistake(
            "no_mask_in_a_chunk",
            (("None if start == 0 else causal_mask(len(q), start, q.device)", "None"),),
        ),
        Mistake(
            "sees_the_next",
            (
                (
                    "None if start == 0 else causal_mask(len(q), start, q.device)",
                    "torch.ones(len(q), start + len(q), dtype=torch.bool, device=q.device)"
                    ".tril(start + 1)",
                ),
                ("is_causal=start == 0", "is_causal=False"),
            ),
        ),
        Mistake(
            "not_itself",
            (
                (
                    "None if start == 0 else causal_mask(len(q), start, q.device)",
                    "torch.ones(len(q), start + len(q), dtype=torch.bool, device=q.device)"
                    ".tril(start - 1)",
                ),
                ("is_causal=start == 0", "is_causal=False"),
            ),
        ),
        Mistake(
            "heads_tiled",
            (
                (
                    "keys, values = kv.unsqueeze(1)",
                    "keys, values = kv.repeat(1, q.shape[1] // kv.shape[1], 1, 1).unsqueeze(1)",
                ),
            ),
        ),
        Mistake("no_scale", (("enable_gqa=True", "enable_gqa=True, scale=1.0"),)),
        Mistake("overflows", ((SCALED, WITH_EXP),)),
        Mistake("heads_first", (("out[0].transpose(0, 1)", "out[0]"),)),
    ),
)

EXERCISES = (ATTEND,)
