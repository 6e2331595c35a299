def online_softmax(scores, values, most, total, acc):
    before = most
    most = tl.maximum(tl.max(scores, axis=1), before)
    shrink = tl.exp2(before - most)
    scores = scores - most[:, None]
    weights = tl.exp2(scores)
    acc = acc * shrink[:, None] + tl.dot(weights.to(values.dtype), values)
    total = shrink * total + tl.sum(weights, axis=1)
    return most, total, acc
