def cost_per_million(price_per_hour: float, good_tokens: int, seconds: float) -> float:
    if price_per_hour < 0 or good_tokens < 0:
        raise ValueError("a price and a number of tokens are 0 or more")
    if seconds <= 0 or math.isinf(seconds):
        raise ValueError(f"seconds is {seconds}; above 0 and finite is needed")
    rent = price_per_hour * seconds / 3600
    return rent / (good_tokens / 1e6) if good_tokens else math.inf
