def victims(self, needed: int) -> list[Entry] | None:
    taken = self.num_bytes + needed
    if taken <= self.budget:
        return []
    leaving = []
    for name in self.entries:
        entry = self.entries[name]
        if entry.num_pins or entry.state is not State.READY:
            continue
        leaving += [entry]
        taken -= entry.num_bytes
        if taken <= self.budget:
            return leaving
