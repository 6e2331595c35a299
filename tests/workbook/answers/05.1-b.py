def online_softmax(scores, values, most, total, acc):
    of_tile = tl.max(scores, axis=1)
    new = tl.where(of_tile > most, of_tile, most)
    old_part = tl.exp2(most - new)
    weights = tl.exp2(scores - new[:, None])
    sums = tl.sum(weights[:, :, None] * values[None, :, :].to(tl.float32), axis=1)
    return new, total * old_part + tl.sum(weights, axis=1), acc * old_part[:, None] + sums
