def capacity(
    meets: Callable[[float], bool], low: float, high: float, tolerance: float = 0.05
) -> Capacity:
    check_search(low, high, tolerance)
    trials = ()
    best, worst, rate = None, None, low
    while rate is not None:
        met = meets(rate)
        trials += (Trial(rate, met),)
        if met:
            best = rate
        else:
            worst = rate
        if worst is None:
            rate = min(2 * rate, high) if rate < high else None
        elif best is None or worst <= best * (1 + tolerance):
            rate = None
        else:
            rate = math.exp((math.log(best) + math.log(worst)) / 2)
    return Capacity(best or 0.0, worst, trials)
