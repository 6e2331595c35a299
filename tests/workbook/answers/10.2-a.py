def capacity(
    meets: Callable[[float], bool], low: float, high: float, tolerance: float = 0.05
) -> Capacity:
    check_search(low, high, tolerance)
    trials = []

    def attempt(rate):
        trials.append(Trial(rate, meets(rate)))
        return trials[-1].is_met

    if not attempt(low):
        return Capacity(0.0, low, tuple(trials))
    good = low
    while good < high:
        bad = min(high, good * 2)
        if not attempt(bad):
            break
        good = bad
    else:
        return Capacity(good, None, tuple(trials))
    while bad / good > 1 + tolerance:
        between = (good * bad) ** 0.5
        if attempt(between):
            good = between
        else:
            bad = between
    return Capacity(good, bad, tuple(trials))
