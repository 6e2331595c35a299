async def acquire(self, name: str) -> Entry:
    entry = self.shelf.entries.get(name)
    if entry is None:
        entry = self._begin(name)
    entry.num_pins += 1
    keep = False
    try:
        await asyncio.wait([entry.task])  # doesn't cancel what it waits for
        entry.task.result()
        keep = True
    finally:
        if not keep:
            self.release(entry)
    self.shelf.entries.move_to_end(name)
    return entry
