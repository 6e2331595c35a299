async def acquire(self, name: str) -> Entry:
    entries = self.shelf.entries
    entry = entries[name] if name in entries else self._begin(name)
    entry.num_pins = entry.num_pins + 1
    loaded = asyncio.get_running_loop().create_future()

    def tell(task):
        if not loaded.done():
            loaded.set_result(None)

    entry.task.add_done_callback(tell)
    try:
        await loaded
        if entry.task.cancelled():
            raise asyncio.CancelledError
        if entry.task.exception() is not None:
            raise entry.task.exception()
    except BaseException as error:
        self.release(entry)
        raise error
    entries.move_to_end(name, last=True)
    return entry
