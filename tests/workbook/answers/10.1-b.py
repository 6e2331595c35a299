def is_met(self, latency: Latency) -> bool:
    def limit(of):
        return math.inf if of is None else of

    return (
        latency.ttft <= limit(self.ttft)
        and all(gap <= limit(self.itl) for gap in latency.itl)
        and (latency.tpot or 0.0) <= limit(self.tpot)
        and latency.e2e <= limit(self.e2e)
    )
