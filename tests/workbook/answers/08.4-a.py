def _join(self, tenant: str, had_its_turn: bool) -> None:
    counter = self.counters.get(tenant, 0.0)
    floor = self._floor()
    if counter < floor and not had_its_turn:
        counter = floor
    self.counters[tenant] = counter
    self.lines[tenant] = OrderedDict()
    if tenant in self.in_least:
        return
    heapq.heappush(self.least, (counter, next(self.turns), tenant))
    self.in_least.add(tenant)
