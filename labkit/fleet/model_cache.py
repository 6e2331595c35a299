"""Which models stay in memory: counted in bytes, the least recently used leaves first.

`Shelf` decides, and knows neither clock nor process. `ModelCache` loads and unloads by it, in an
event loop. A request pins its model for as long as it needs it: what is pinned never leaves.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum

PATIENCE_S = 30.0
RETRY_AFTER_S = 5


class ModelTooLarge(ValueError):
    """The model would not fit into the budget if it were alone there."""


class ModelsBusy(RuntimeError):
    """Models in use hold the memory. Try again in RETRY_AFTER_S."""


class ModelLoadFailed(RuntimeError):
    """The model could not be loaded. Who had to leave for it is loaded again, if there is room."""


class State(StrEnum):
    WAITING = "waiting"  # for memory
    LOADING = "loading"
    READY = "ready"
    LEAVING = "leaving"  # as soon as the one that takes its place is there


@dataclass(eq=False)
class Entry:
    """A model on the shelf. Only one that is READY and has no pins may leave."""

    name: str
    num_bytes: int = 0  # estimated until it is loaded, then measured
    num_pins: int = 0  # requests that use it or wait for it
    state: State = State.WAITING
    value: object = None
    progress: float = 0.0  # of loading, 0 to 1
    task: asyncio.Task | None = None  # that loads it
    successor: object = None  # the entry for which it leaves

    @property
    def is_idle(self) -> bool:
        return self.state is State.READY and self.num_pins == 0


class Shelf:
    """The models in memory or on their way there, the least recently used first."""

    def __init__(self, budget: int):
        self.budget = budget  # bytes
        self.entries: OrderedDict[str, Entry] = OrderedDict()

    @property
    def num_bytes(self) -> int:
        """What is taken: a model that is being loaded counts, not one that waits or leaves."""
        taken = (State.LOADING, State.READY)
        return sum(e.num_bytes for e in self.entries.values() if e.state in taken)

    def victims(self, needed: int) -> list[Entry] | None:
        """Who must leave so that `needed` bytes more fit into the budget.

        Idle entries, the least recently used first, and no more of them than are needed: an
        empty list when there is room already. None when it wouldn't be enough if all idle ones
        left; then nobody has to. Bytes count, not models: one large model may stand for ten
        small ones. An entry that is pinned, or not READY, stays.
        """
        missing = self.num_bytes + needed - self.budget
        leaving = []
        for entry in self.entries.values():
            if missing <= 0:
                break
            if entry.is_idle:
                leaving.append(entry)
                missing -= entry.num_bytes
        return leaving if missing <= 0 else None


class Loader(ABC):
    """What a cache needs to know of models."""

    @abstractmethod
    async def estimate(self, name: str) -> int:
        """Bytes that a model will need. Raises ModelLoadFailed for one that can't be loaded."""

    @abstractmethod
    async def load(self, entry: Entry) -> tuple[object, int]:
        """The model and the bytes that it takes, measured. Keeps `entry.progress`."""

    @abstractmethod
    async def unload(self, entry: Entry) -> None:
        """Frees what `entry.value` holds. Never raises."""

    def spare_bytes(self) -> int:
        """Memory beyond the budget that may be used while a model takes the place of others:
        then these leave when it is there, and stay if it can't be loaded."""
        return 0


class ModelCache:
    """Models that are loaded when they are first asked for, within `budget` bytes.

    A model waits up to `patience_s` for others to free memory, then who waits for it is told
    ModelsBusy. All is done in one event loop.
    """

    def __init__(self, budget: int, loader: Loader, patience_s: float = PATIENCE_S):
        self.shelf, self.loader, self.patience_s = Shelf(budget), loader, patience_s
        self.unloading: set[asyncio.Task] = set()  # each of a model that is off the shelf
        self.changed = asyncio.Event()  # a pin was given back, or a model is gone
        self.loads = self.evictions = self.failures = 0
        self.is_closed = False

    @asynccontextmanager
    async def use(self, name: str):
        """The loaded model, which stays until the block ends. Raises as `acquire` does."""
        entry = await self.acquire(name)
        try:
            yield entry.value
        finally:
            self.release(entry)

    async def acquire(self, name: str) -> Entry:
        """The entry of a model that is READY, with a pin for the caller, who must `release` it.

        Single flight: however many ask at once, a model is loaded once, by the task of its
        entry (`_begin` makes both). Who waits has a pin already, or the model could leave
        between the end of its load and their turn. A caller that is cancelled gives its pin
        back and ends nobody else's load. The model asked for last stands at the end of the
        shelf. Raises ModelTooLarge, ModelsBusy or ModelLoadFailed, and holds no pin then.
        """
        entry = self.shelf.entries.get(name) or self._begin(name)
        entry.num_pins += 1
        try:
            await asyncio.shield(entry.task)
        except BaseException:
            self.release(entry)
            raise
        self.shelf.entries.move_to_end(name)
        return entry

    def release(self, entry: Entry) -> None:
        """Gives a pin back. ValueError when there is none."""
        if entry.num_pins < 1:
            raise ValueError(f"{entry.name} has {entry.num_pins} pins; release once per acquire")
        entry.num_pins -= 1
        self._trim()
        self._tell()

    async def close(self) -> None:
        """Unloads everything; nothing may be asked for any more."""
        self.is_closed = True
        tasks = [entry.task for entry in self.shelf.entries.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        here = (State.READY, State.LEAVING)
        self._evict([e for e in self.shelf.entries.values() if e.state in here])
        await self._all_gone()

    def _begin(self, name: str) -> Entry:
        """A new entry, and the task that loads it."""
        entry = self.shelf.entries[name] = Entry(name)
        self._start(entry, self._load(entry))
        return entry

    def _start(self, entry: Entry, work: Coroutine) -> None:
        entry.task = asyncio.create_task(work)
        entry.task.add_done_callback(lambda task: task.cancelled() or task.exception())  # seen

    async def _load(self, entry: Entry) -> None:
        gone: list[Entry] = []
        try:
            entry.num_bytes = await self.loader.estimate(entry.name)
            self._refuse_too_large(entry)
            gone = await self._make_room(entry)
            await self._all_gone()
            entry.value, entry.num_bytes = await self.loader.load(entry)
            entry.state = State.READY
            self._refuse_too_large(entry)
        except BaseException:
            self.failures += entry.state is not State.WAITING
            # One that is READY was loaded, and then measured too large.
            self._evict([entry]) if entry.state is State.READY else self._forget(entry)
            self._restore(gone)
            raise
        self.loads += 1
        self._trim()
        self._tell()

    def _restore(self, gone: list[Entry]) -> None:
        """Loads again who had to leave for nothing, where nobody has to leave for that."""
        needed = 0
        for victim in gone:
            is_wanted = victim.name not in self.shelf.entries and not self.is_closed
            if is_wanted and self.shelf.victims(needed + victim.num_bytes) == []:
                needed += victim.num_bytes
                self._begin(victim.name)

    def _refuse_too_large(self, entry: Entry) -> None:
        if entry.num_bytes > self.shelf.budget:
            raise ModelTooLarge(
                f"model {entry.name!r} needs {gigabytes(entry.num_bytes)}, all models together "
                f"may have {gigabytes(self.shelf.budget)}; raise that, or take less: a smaller "
                "model, or less memory for its KV cache"
            )

    async def _make_room(self, entry: Entry) -> list[Entry]:
        """Waits until the entry fits, and reserves its bytes. Returns those who had to leave
        before it can be loaded: nobody, where it can be loaded first. Raises ModelsBusy."""
        try:
            async with asyncio.timeout(self.patience_s):
                while (victims := self._who_leaves_for(entry)) is None:
                    if entry.num_pins == 0:
                        raise TimeoutError  # nobody waits for it any more
                    await self.changed.wait()
        except TimeoutError:
            held = [e.name for e in self.shelf.entries.values() if e.state is not State.WAITING]
            raise ModelsBusy(
                f"model {entry.name!r} needs {gigabytes(entry.num_bytes)} of "
                f"{gigabytes(self.shelf.budget)}, and {', '.join(held)} are in use; try again "
                f"in {RETRY_AFTER_S} s"
            ) from None
        entry.state = State.LOADING  # counts from here on
        if self._in_memory() - self.shelf.budget > self.loader.spare_bytes():
            self._evict(victims)
            return victims
        for victim in victims:
            victim.state, victim.successor = State.LEAVING, entry
            self._start(victim, self._give_way(victim, entry.task))
        return []

    def _who_leaves_for(self, entry: Entry) -> list[Entry] | None:
        """As `Shelf.victims`, unless others are LEAVING: they stay if their successor can't be
        loaded, so their room can't be promised twice. Only what fits either way has room then."""
        if not (leaving := [e for e in self.shelf.entries.values() if e.state is State.LEAVING]):
            return self.shelf.victims(entry.num_bytes)
        coming = {e.successor for e in leaving} & {*self.shelf.entries.values()}
        back = sum(e.num_bytes for e in leaving) - sum(e.num_bytes for e in coming)
        taken = self.shelf.num_bytes + max(back, 0)
        there = self._in_memory() - self.loader.spare_bytes()
        return [] if max(taken, there) + entry.num_bytes <= self.shelf.budget else None

    def _in_memory(self) -> int:
        """Bytes of all that is there or on its way, those included that are to leave."""
        return sum(e.num_bytes for e in self.shelf.entries.values() if e.state is not State.WAITING)

    async def _give_way(self, victim: Entry, coming: asyncio.Task) -> None:
        """What becomes of a victim when the one who takes its place is there, or can't be loaded.
        Who asks for it meanwhile waits for that; then it needs room, as any other."""
        await asyncio.wait({coming})
        if coming.cancelled() or coming.exception():
            victim.state = State.READY
            self._tell()
            return
        self._evict([victim])
        if victim.num_pins:  # of those who wait for this very task, so it is the same entry
            victim.state, victim.progress = State.WAITING, 0.0
            self.shelf.entries[victim.name] = victim
            await self._load(victim)  # once its memory is free (`_all_gone`)

    def _trim(self) -> None:
        """Lets idle ones leave when a model turned out larger than it was reckoned."""
        if self.shelf.num_bytes > self.shelf.budget:
            self._evict(self.shelf.victims(0) or [])

    def _evict(self, entries: list[Entry]) -> None:
        for entry in entries:
            self.evictions += 1
            self._forget(entry)
            task = asyncio.create_task(self.loader.unload(entry))
            self.unloading.add(task)
            task.add_done_callback(self.unloading.discard)

    def _forget(self, entry: Entry) -> None:
        if self.shelf.entries.get(entry.name) is entry:
            del self.shelf.entries[entry.name]
        self._tell()

    async def _all_gone(self) -> None:
        """Memory is free when a model's process has ended, not when it was told to."""
        while self.unloading:
            await asyncio.wait({*self.unloading})

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


def gigabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.2f} GB"
