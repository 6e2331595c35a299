"""A model cache whose loads, unloads and clock a test has in its hands: nothing takes time."""

import asyncio
from collections import Counter

from labkit.fleet.model_cache import Entry, Loader, ModelCache, ModelLoadFailed, State

PATIENCE_S = 10.0
GB = 10**9
BUDGET = 10 * GB
SIZES = {"a": 4 * GB, "b": 4 * GB, "c": 6 * GB, "d": 2 * GB, "e": 9 * GB, "huge": 11 * GB}


class Fake(Loader):
    """Loads when it is told to. `there` are the bytes that are really taken, by name."""

    def __init__(self, sizes=SIZES, spare: int = 0):
        self.sizes, self.spare = sizes, spare
        self.loading: dict[str, asyncio.Future] = {}
        self.unloading: dict[str, asyncio.Future] = {}
        self.there: Counter[str] = Counter()
        self.most, self.num_loads, self.alive = 0, Counter(), set()
        self.faults: list[str] = []  # of unloads, of which nobody hears

    async def estimate(self, name: str) -> int:
        await asyncio.sleep(0)
        return self.sizes[name]

    async def load(self, entry: Entry):
        name = entry.name
        assert name not in self.loading, f"{name} is loaded twice at once"
        assert not self.there[name], f"{name} is loaded while it is still there"
        self.num_loads[name] += 1
        self.there[name] = self.sizes[name]
        self.most = max(self.most, self.there.total())
        self.loading[name] = asyncio.get_running_loop().create_future()
        try:
            num_bytes = await self.loading[name]
        except BaseException:
            self.there[name] = 0
            raise
        finally:
            del self.loading[name]
        self.there[name] = num_bytes
        value = object()
        self.alive.add(value)
        return value, num_bytes

    async def unload(self, entry: Entry) -> None:
        never_used = entry.num_bytes > BUDGET  # who waits for it is told so
        only_waited_for = entry.state is State.WAITING  # and loaded again when there is room
        if entry.num_pins > 0 and not (never_used or only_waited_for):
            self.faults.append(f"{entry.name} is in use and unloaded")
        if entry.name in self.unloading or entry.value not in self.alive:
            self.faults.append(f"{entry.name} is unloaded twice")
        self.alive.discard(entry.value)
        self.unloading[entry.name] = asyncio.get_running_loop().create_future()
        await self.unloading[entry.name]
        del self.unloading[entry.name]
        self.there[entry.name] = 0

    def spare_bytes(self) -> int:
        return self.spare

    def loaded(self, name: str, num_bytes: int | None = None) -> None:
        self.loading[name].set_result(self.sizes[name] if num_bytes is None else num_bytes)

    def failed(self, name: str) -> None:
        self.loading[name].set_exception(ModelLoadFailed(f"{name} is broken"))


class Play:
    """A cache whose time the test makes; callers are tasks that `ask` for a model."""

    def __init__(self, **options):
        self.loader = Fake(**options)
        self.cache = ModelCache(BUDGET, self.loader, PATIENCE_S)
        self.now, self.loop = 0.0, asyncio.get_running_loop()
        self.loop.time = lambda: self.now

    async def settle(self) -> None:
        """Lets everybody do what they can without waiting for a load, an unload or the clock."""
        for _ in range(30):
            await asyncio.sleep(0)

    async def ask(self, name: str) -> asyncio.Task:
        task = asyncio.create_task(self.cache.acquire(name))
        await self.settle()
        return task

    async def loaded(self, name: str, num_bytes: int | None = None) -> None:
        self.loader.loaded(name, num_bytes)
        await self.settle()

    async def failed(self, name: str) -> None:
        self.loader.failed(name)
        await self.settle()

    async def unloaded(self, name: str) -> None:
        self.loader.unloading[name].set_result(None)
        await self.settle()

    async def passes(self, seconds: float) -> None:
        self.now += seconds
        await self.settle()

    async def use(self, name: str) -> Entry:
        """Loads a model at once, and leaves it pinned."""
        asked = await self.ask(name)
        if not asked.done():
            await self.loaded(name)
        return asked.result()

    def states(self) -> dict[str, State]:
        return {name: entry.state for name, entry in self.cache.shelf.entries.items()}


def played(story):
    """Runs an async test in a loop of its own, whose clock may be turned."""
    loop = asyncio.SelectorEventLoop()

    async def whole():
        try:
            await story
        finally:
            while left := asyncio.all_tasks() - {asyncio.current_task()}:
                for task in left:
                    task.cancel()
                await asyncio.gather(*left, return_exceptions=True)

    try:
        loop.run_until_complete(whole())
    finally:
        loop.close()


def play(test):
    """A test whose one argument is a Play."""

    def run():
        async def story():
            await test(Play())

        played(story())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run
