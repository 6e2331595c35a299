def cost_per_million(price_per_hour: float, good_tokens: int, seconds: float) -> float:
    if min(price_per_hour, good_tokens) < 0 or not 0 < seconds < math.inf:
        raise ValueError((price_per_hour, good_tokens, seconds))
    millions_per_hour = good_tokens / seconds * 3600 / 1e6
    if millions_per_hour == 0:
        return math.inf
    return price_per_hour / millions_per_hour
