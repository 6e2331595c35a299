def victims(self, needed: int) -> list[Entry] | None:
    missing = self.num_bytes + needed - self.budget
    idle = [e for e in self.entries.values() if e.num_pins == 0 and e.state == State.READY]
    for count in range(len(idle) + 1):
        if sum(e.num_bytes for e in idle[:count]) >= missing:
            return idle[:count]
    return None
