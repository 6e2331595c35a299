def is_met(self, latency: Latency) -> bool:
    if self.ttft is not None and latency.ttft > self.ttft:
        return False
    if self.itl is not None and any(gap > self.itl for gap in latency.itl):
        return False
    if self.tpot is not None and latency.tpot is not None and latency.tpot > self.tpot:
        return False
    return self.e2e is None or latency.e2e <= self.e2e
