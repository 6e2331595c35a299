def merge(most, total, acc):
    share = tl.exp2(most - tl.max(most, axis=0))
    return tl.sum(acc * share[:, None], axis=0) / tl.sum(share * total, axis=0)
