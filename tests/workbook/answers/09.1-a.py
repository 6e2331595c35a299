def victims(self, needed: int) -> list[Entry] | None:
    free = self.budget - self.num_bytes
    leaving = []
    idle = [entry for entry in self.entries.values() if entry.is_idle]
    while free < needed and idle:
        first = idle.pop(0)
        leaving.append(first)
        free += first.num_bytes
    if free < needed:
        return None
    return leaving
