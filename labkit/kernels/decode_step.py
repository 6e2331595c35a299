"""All layers of a decode step in float32 as one compiled function.

Between two products there is no Python and no dispatch, whose code would have to come from far
away each time: the weights have pushed it out of the caches.
"""

from labkit.kernels import loops
from labkit.kernels.mkl import ONE, ZERO, product


@loops.compiled
def decode_step(x, weights, biases, norms, batch, cache, buffers):
    """The layers for one new token per row of `x` `[T, hidden]`, which is changed in place.

    For each layer `weights` `[layers, 4]` has the addresses of qkv, o, gate_up and down;
    `biases` are four arrays `[layers, out]`, or `[layers, 0]` for none. `norms` and `batch` as
    in `loops.turn_keep_attend`, with a row per layer. `cache` is
    `[layers, num_blocks, 2, kv_heads, block_size, head_dim]`.
    """
    h, qkv, q, attended, gates, gated, ones = buffers
    q_norms, k_norms, eps = norms
    heads = (qkv.reshape(len(x), -1, q.shape[2]), ones)
    for i in range(len(weights)):
        loops.normalize(x, eps, h)
        product(h, weights[i, 0], biases[0][i], ZERO, qkv)
        norms_of_layer = (q_norms[i], k_norms[i], eps)
        loops.turn_keep_attend(heads, norms_of_layer, batch, cache[i], q, attended)
        product(attended.reshape(len(x), -1), weights[i, 1], biases[1][i], ONE, x)
        loops.normalize(x, eps, h)
        product(h, weights[i, 2], biases[2][i], ZERO, gates)
        loops.gate(gates, ones, gated)
        product(gated[0], weights[i, 3], biases[3][i], ONE, x)
