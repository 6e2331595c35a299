def _join(self, tenant: str, had_its_turn: bool) -> None:
    self.counters.setdefault(tenant, 0.0)
    if not had_its_turn and self._floor() > self.counters[tenant]:
        self.counters[tenant] = self._floor()
    self.lines[tenant] = OrderedDict()
    if tenant not in self.in_least:
        entry = self.counters[tenant], next(self.turns), tenant
        heapq.heappush(self.least, entry)
        self.in_least |= {tenant}
