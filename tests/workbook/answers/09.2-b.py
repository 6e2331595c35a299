async def acquire(self, name: str) -> Entry:
    if name not in self.shelf.entries:
        self._begin(name)
    entry = self.shelf.entries[name]
    self.shelf.entries.move_to_end(name)
    entry.num_pins += 1
    if entry.state is State.READY:
        return entry
    try:
        await asyncio.shield(entry.task)
        self.shelf.entries.move_to_end(name)
        return entry
    except asyncio.CancelledError:
        self.release(entry)
        raise
    except Exception:
        self.release(entry)
        raise
