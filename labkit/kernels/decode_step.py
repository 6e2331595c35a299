"""All layers of a decode step as one compiled function.

Between two products there is no Python and no dispatch, whose code would have to come from far
away each time: the weights have pushed it out of the caches.
"""

from numba.extending import overload

from labkit.kernels import attention, integers, loops, panels


def multiply(operand, product, layer, out):
    """out = the operand times the weight of one layer; `product` decides how, when compiled."""
    raise NotImplementedError("for compiled loops only")


@overload(multiply)
def chosen_by_product(operand, product, layer, out):
    """In float32 a product is (addresses, biases), in integers (weights, zeros, steps, biases)."""

    def in_float32(operand, product, layer, out):
        addresses, biases = product
        panels.product(operand[0], addresses[layer], biases[layer], out)

    def in_integers(operand, product, layer, out):
        weights, zeros, steps, biases = product
        integers.product(
            operand[1], operand[2], weights[layer], zeros[layer], steps[layer], biases[layer], out
        )

    return in_float32 if len(product) == 2 else in_integers


@loops.compiled
def decode_step(x, products, norms, batch, cache, operands, results):
    """The layers for one new token per row of `x` `[T, hidden]`, the residual stream, in place.

    `products` are those of qkv, o, gate_up and down, each with arrays that have a row per layer,
    as have the first two of `norms`; `batch` is as in `attention.turn_keep_attend`. `cache` is
    `[layers, num_blocks, 2, kv_heads, block_size, head_dim]`. `operands` are what qkv and gate_up,
    o, and down read, as `model.linear.Operand.arrays`; the first has the normalized `x`, before and
    after. `results` is memory for queries `[T, heads, head_dim]`, and for what qkv, gate_up, and o
    or down give.
    """
    qkv, o, gate_up, down = products
    h, attended, gated = operands
    q, heads, gates, added = results
    q_norms, k_norms, eps = norms
    attended_heads = attended[0].reshape(q.shape)
    for i in range(len(cache)):
        multiply(h, qkv, i, heads)
        raw = (heads.reshape(len(x), -1, q.shape[2]), h[2])
        norms_of_layer = (q_norms[i], k_norms[i], eps)
        attention.turn_keep_attend(raw, norms_of_layer, batch, cache[i], q, attended_heads)
        loops.finish(attended)
        multiply(attended, o, i, added)
        loops.add_and_normalize(x, added, attended[2], eps, h)
        multiply(h, gate_up, i, gates)
        loops.gate(gates, h[2], gated)
        multiply(gated, down, i, added)
        loops.add_and_normalize(x, added, gated[2], eps, h)
