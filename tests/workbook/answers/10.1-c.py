def is_met(self, latency: Latency) -> bool:
    longest = max(latency.itl, default=0.0)
    mean = latency.tpot if latency.itl else 0.0
    seen = {"ttft": latency.ttft, "itl": longest, "tpot": mean, "e2e": latency.e2e}
    for name, seconds in seen.items():
        most = getattr(self, name)
        if most is not None and not seconds <= most:
            return False
    return True
