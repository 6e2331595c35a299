def cost_per_million(price_per_hour: float, good_tokens: int, seconds: float) -> float:
    for value in (price_per_hour, good_tokens):
        if not value >= 0:
            raise ValueError(f"{value} is below 0")
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ValueError(f"{seconds} seconds")
    try:
        return price_per_hour / 3600 * seconds / good_tokens * 1_000_000
    except ZeroDivisionError:
        return math.inf
