def merge(most, total, acc):
    top = tl.max(most, axis=0)
    factor = tl.exp2(most - top)
    whole = tl.sum(factor * total, axis=0)
    factor = factor / whole
    result = tl.sum(factor[:, None] * acc, axis=0)
    return result
