def _join(self, tenant: str, had_its_turn: bool) -> None:
    had = self.counters.get(tenant, 0.0)
    least = had if had_its_turn else self._floor()
    self.counters[tenant] = had if had > least else least
    self.lines[tenant] = OrderedDict()
    if tenant in self.in_least:
        return
    heapq.heappush(self.least, (self.counters[tenant], next(self.turns), tenant))
    self.in_least |= {tenant}
