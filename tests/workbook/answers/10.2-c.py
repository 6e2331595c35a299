def capacity(
    meets: Callable[[float], bool], low: float, high: float, tolerance: float = 0.05
) -> Capacity:
    check_search(low, high, tolerance)
    found: dict[float, bool] = {}
    rate = low
    while True:
        found[rate] = meets(rate)
        if rate >= high or not found[rate]:
            break
        rate = rate * 2 if rate * 2 < high else high
    if all(found.values()):
        return Capacity(high, None, tuple(Trial(*one) for one in found.items()))
    while True:
        good = max([rate for rate, met in found.items() if met], default=0.0)
        bad = min(rate for rate, met in found.items() if not met)
        if good == 0.0 or bad - good <= tolerance * good:
            return Capacity(good, bad, tuple(Trial(*one) for one in found.items()))
        middle = good * math.sqrt(bad / good)
        found[middle] = meets(middle)
