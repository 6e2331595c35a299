"""Plays small stories of the fleet for a check, and writes down what a part did. No clock."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace

TOLD = "ModelLoadFailed", "ModelTooLarge", "ModelsBusy"
TURNS = 60  # of the event loop after each action: all that can happen has happened


def victims(part, budget: int, entries: Sequence[tuple], needed: int) -> dict:
    """What `Shelf.victims` says. `entries` has (name, bytes, pins, state), longest unused first."""
    shelf = part.Shelf(budget)
    for name, num_bytes, num_pins, state in entries:
        shelf.entries[name] = part.Entry(name, num_bytes, num_pins, part.State(state))
    before = _told_of(shelf)
    leaving = shelf.victims(needed)
    names = [] if leaving is None else [entry.name for entry in leaving]
    found = {
        "leave": "None" if leaving is None else names,
        "stay": [name for name in shelf.entries if name not in names],
    }
    after = _told_of(shelf)  # asking changes nothing: who asks has them leave
    return found if after == before else found | {"shelf": after}


def _told_of(shelf) -> list[str]:
    return [f"{e.name}: {e.state}, {e.num_bytes} bytes, {e.num_pins} pins"
            for e in shelf.entries.values()]


class HeldLoader:
    """Loads when the story says so, and writes down what it was asked to do."""

    def __init__(self, sizes: dict[str, int], spare: int = 0):
        self.sizes, self.spare, self.events = sizes, spare, []
        self.loading: dict[str, asyncio.Future] = {}

    async def estimate(self, name: str) -> int:
        return self.sizes[name]

    async def load(self, entry) -> tuple[object, int]:
        self.events.append(f"load {entry.name}")
        self.loading[entry.name] = asyncio.get_running_loop().create_future()
        await self.loading[entry.name]
        return f"model {entry.name}", self.sizes[entry.name]

    async def unload(self, entry) -> None:
        self.events.append(f"unload {entry.name}")

    def spare_bytes(self) -> int:
        return self.spare


def acquired(part, actions: Sequence[tuple], budget: int = 2, spare: int = 0) -> dict:
    """What callers of `ModelCache.acquire` saw after each action, and what was loaded.

    Actions: ("asks", caller, model); ("loaded", model); ("fails", model); ("cancelled", caller);
    ("done", caller), who releases. A model takes 1 byte, one with a capital letter 2.
    """
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(_story(part, actions, budget, spare))
    finally:
        with suppress(RuntimeError):
            loop.run_until_complete(_ended(loop))
        loop.close()


async def _story(part, actions, budget, spare) -> dict:
    models = {model for what, *_, model in actions if what == "asks"}
    loader = HeldLoader({name: 1 + name.isupper() for name in models}, spare)
    cache, begun = part.ModelCache(budget, loader), []
    begin = cache._begin

    def noted(name):
        begun.append(begin(name))
        return begun[-1]

    cache._begin = noted
    callers, seen = {}, {}
    for number, (what, *given) in enumerate(actions):
        if what == "asks":
            caller, model = given
            callers[caller] = asyncio.create_task(cache.acquire(model))
            seen[caller] = [""] * number
        elif what == "cancelled":
            callers[given[0]].cancel()
        elif what == "done":
            cache.release(callers[given[0]].result())
            callers[given[0]] = None
        elif given[0] not in loader.loading:
            loader.events.append(f"nobody loads {given[0]}")
        elif not loader.loading[given[0]].done():
            failed = part.ModelLoadFailed(f"no {given[0]}")
            result = loader.loading[given[0]]
            result.set_result(None) if what == "loaded" else result.set_exception(failed)
        await _settled()
        for caller, task in callers.items():
            seen[caller].append(_looks(task, TOLD))
    return {
        "callers": seen,
        "loader": [*loader.events],  # what the end of the story does is none of it
        "pins": {name: sum(e.num_pins for e in begun if e.name == name) for name in sorted(models)},
        "on the shelf": [*cache.shelf.entries],
    }


def _looks(task, told: Sequence[str]) -> str:
    """What a caller has: the model's name, "waits", "left", or an error. One that is not among
    those `told` to callers is the part's own, and raised."""
    if task is None:
        return "done"
    if not task.done():
        return "waits"
    if task.cancelled():
        return "left"
    if error := task.exception():
        if type(error).__name__ not in told:
            raise error
        return type(error).__name__.removeprefix("Model")
    entry = task.result()
    return "no model" if getattr(entry, "value", None) is None else entry.name


async def _settled() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def _ended(loop) -> None:
    """Cancels what is left, and what that begins as it ends; who doesn't obey is left behind."""
    for _ in range(3):
        for task in asyncio.all_tasks(loop) - {asyncio.current_task()}:
            task.cancel()
            task.add_done_callback(lambda one: one.cancelled() or one.exception())
        await _settled()


def breaker(part, actions: Sequence[tuple], **options) -> dict:
    """Actions: ("asks", t), ("fails", t), ("succeeds", t), ("leaves", t). What `allows` said,
    in turn, and at which seconds."""
    one, said = part.Breaker(**options), {"asked at": [], "allowed": []}
    for what, now in actions:
        if what == "asks":
            said["asked at"].append(now)
            said["allowed"].append(one.allows(now))
        elif what == "fails":
            one.failed(now)
        elif what == "succeeds":
            one.succeeded(now)
        else:
            one.cancelled(now)
    return said


def routed(part, router, actions: Sequence[tuple], replicas: Sequence) -> dict:
    """Where requests went: {replica: [request, ...]}, and in "nowhere" those that found none.

    Actions: ("sends", name, tokens, what it is recognised by), a session or a text of which each
    letter is a block; ("ends", name); ("lost", replica); ("back", replica); ("joins", replica).
    """
    replicas = list(replicas)
    by_name = {replica.name: replica for replica in replicas}
    went, under_way = {name: [] for name in by_name}, {}
    for what, name, *given in actions:
        if what == "sends":
            request = _request(name, *given)
            try:
                replica = replicas[router.choose(request, replicas)]
            except part.NoReplica:
                went.setdefault("nowhere", []).append(name)
                continue
            went[replica.name].append(name)
            router.dispatched(request, replica)
            under_way[name] = request, replica
        elif what == "ends":
            router.finished(*under_way.pop(name))
        elif what == "joins":
            by_name[name] = part.Replica(name)
            replicas.append(by_name[name])
            went[name] = []
        else:
            by_name[name].healthy = what == "back"
    return went


def _request(name: str, num_tokens: int, known_by: str):
    hashes = [known_by[: end + 1].encode() for end in range(len(known_by))]
    return SimpleNamespace(
        request_id=name, prompt_token_ids=range(num_tokens), max_tokens=0, tenant=known_by,
        block_hashes=hashes,
    )  # fmt: skip
