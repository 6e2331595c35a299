"""The model cache under histories that nobody would write down: who asks, leaves, fails, when."""

import asyncio

import pytest
from fake_models import BUDGET, GB, PATIENCE_S, SIZES, Play, play, played
from hypothesis import given
from hypothesis import strategies as st

from labkit.fleet.model_cache import (
    Entry,
    ModelLoadFailed,
    ModelsBusy,
    ModelTooLarge,
    Shelf,
    State,
)

# ---- the shelf


@st.composite
def shelves(draw):
    shelf = Shelf(draw(st.integers(1, 30)))
    for number in range(draw(st.integers(0, 6))):
        entry = Entry(f"m{number}", draw(st.integers(1, 9)), draw(st.integers(0, 1)))
        entry.state = draw(st.sampled_from([*State, State.READY]))
        shelf.entries[entry.name] = entry
    return shelf


@given(shelves(), st.integers(0, 30))
def test_who_leaves_is_idle_longest_unused_first_and_no_more_than_needed(shelf, needed):
    idle = [e for e in shelf.entries.values() if e.state is State.READY and e.num_pins == 0]
    missing = shelf.num_bytes + needed - shelf.budget
    leaving = shelf.victims(needed)
    if leaving is None:
        assert sum(e.num_bytes for e in idle) < missing
        return
    assert leaving == idle[: len(leaving)]
    freed = [e.num_bytes for e in leaving]
    assert sum(freed) >= missing and (not freed or sum(freed[:-1]) < missing)


@given(shelves())
def test_a_model_that_waits_for_memory_or_leaves_takes_none(shelf):
    out = (State.WAITING, State.LEAVING)
    taken = [e.num_bytes for e in shelf.entries.values() if e.state not in out]
    assert shelf.num_bytes == sum(taken)


# ---- small stories


@play
async def test_ten_who_ask_at_once_make_one_load(one):
    tasks = [await one.ask("a") for _ in range(10)]
    assert one.loader.num_loads["a"] == 1 and not any(task.done() for task in tasks)
    await one.loaded("a")
    entries = {task.result() for task in tasks}
    assert len(entries) == 1 and entries.pop().num_pins == 10
    assert one.loader.num_loads["a"] == 1


@play
async def test_32_who_streams_is_not_disturbed_and_who_waits_is_served_after(one):
    streaming = await one.use("c")
    tasks = [await one.ask("e") for _ in range(10)]
    assert one.loader.num_loads["e"] == 0 and one.states()["e"] is State.WAITING
    assert streaming.value in one.loader.alive
    one.cache.release(streaming)
    await one.settle()
    assert [*one.loader.unloading] == ["c"] and not one.loader.loading  # memory first
    await one.unloaded("c")
    await one.loaded("e")
    assert all(task.done() for task in tasks) and one.loader.num_loads["e"] == 1


@play
async def test_who_has_waited_long_enough_is_told_and_the_next_may_try(one):
    streaming = await one.use("c")
    waiting = [await one.ask("e") for _ in range(3)]
    await one.passes(PATIENCE_S - 1)
    late = await one.ask("e")
    assert not any(task.done() for task in waiting)
    await one.passes(2)
    for task in [*waiting, late]:
        with pytest.raises(ModelsBusy, match="'e'.*c are in use"):
            task.result()
    assert one.states() == {"c": State.READY} and streaming.num_pins == 1
    again = await one.ask("e")
    one.cache.release(streaming)
    await one.settle()
    await one.unloaded("c")
    await one.loaded("e")
    assert again.result().state is State.READY


@play
async def test_what_never_fits_is_refused_with_both_numbers(one):
    await one.use("a")
    task = await one.ask("huge")
    with pytest.raises(ModelTooLarge, match="11.00 GB.*10.00 GB"):
        task.result()
    assert one.states() == {"a": State.READY} and one.loader.num_loads["huge"] == 0


@play
async def test_a_model_larger_than_reckoned_leaves_again_if_it_never_fits(one):
    task = await one.ask("c")
    await one.loaded("c", num_bytes=BUDGET + GB)
    with pytest.raises(ModelTooLarge):
        task.result()
    await one.unloaded("c")
    assert one.states() == {} and one.loader.there.total() == 0


@play
async def test_a_model_larger_than_reckoned_sends_idle_ones_away(one):
    one.cache.release(await one.use("a"))
    task = await one.ask("b")
    await one.loaded("b", num_bytes=7 * GB)
    assert task.result().num_bytes == 7 * GB and [*one.loader.unloading] == ["a"]


@play
async def test_who_is_too_much_leaves_as_soon_as_nobody_uses_it(one):
    old = await one.use("a")
    task = await one.ask("b")
    await one.loaded("b", num_bytes=7 * GB)
    assert task.done() and not one.loader.unloading
    one.cache.release(old)
    assert "a" not in one.states()


@play
async def test_a_failed_load_is_told_to_all_at_once_and_tried_again_by_the_next(one):
    tasks = [await one.ask("a") for _ in range(3)]
    await one.failed("a")
    for task in tasks:
        with pytest.raises(ModelLoadFailed, match="a is broken"):
            task.result()
    assert one.states() == {}
    again = await one.ask("a")
    await one.loaded("a")
    assert again.result().num_pins == 1 and one.loader.num_loads["a"] == 2


@play
async def test_after_a_failed_load_those_who_left_for_it_come_back(one):
    one.cache.release(await one.use("c"))
    task = await one.ask("e")
    await one.unloaded("c")
    await one.failed("e")
    with pytest.raises(ModelLoadFailed):
        task.result()
    await one.loaded("c")
    assert one.states() == {"c": State.READY}


@play
async def test_who_asks_for_a_model_that_left_for_a_failed_one_is_served_by_one_load(one):
    one.cache.release(await one.use("c"))
    failing = await one.ask("e")
    again = await one.ask("c")
    await one.unloaded("c")
    await one.failed("e")
    assert isinstance(failing.exception(), ModelLoadFailed)
    await one.loaded("c")
    assert again.result() is one.cache.shelf.entries["c"] and one.loader.num_loads["c"] == 2


def test_nobody_leaves_for_a_model_before_it_is_there_where_memory_allows():
    async def story():
        one = Play(spare=100 * GB)
        one.cache.release(await one.use("c"))
        task = await one.ask("e")
        assert one.states()["c"] is State.LEAVING and not one.loader.unloading
        await one.loaded("e")
        assert task.done() and [*one.loader.unloading] == ["c"]

    played(story())


def test_who_asks_for_a_model_that_is_to_leave_waits_for_what_becomes_of_it():
    """Else two models that are always in use would stay beyond the budget for ever."""

    async def story():
        one = Play(spare=100 * GB)
        one.cache.release(await one.use("c"))
        coming, again = await one.ask("e"), await one.ask("c")
        assert not again.done()
        await one.failed("e")
        assert isinstance(coming.exception(), ModelLoadFailed)
        assert again.result().state is State.READY and one.loader.num_loads["c"] == 1
        one.cache.release(again.result())
        coming, again = await one.ask("e"), await one.ask("c")
        await one.loaded("e")
        await one.unloaded("c")
        assert not again.done() and one.cache.shelf.num_bytes == SIZES["e"]
        one.cache.release(coming.result())
        await one.settle()
        await one.loaded("c")
        assert again.result().num_pins == 1 and one.loader.num_loads["c"] == 2

    played(story())


@play
async def test_closing_waits_for_models_that_leave(one):
    one.cache.release(await one.use("c"))
    await one.ask("e")
    closing = asyncio.create_task(one.cache.close())
    await one.settle()
    assert not closing.done() and [*one.loader.unloading] == ["c"]
    await one.unloaded("c")
    assert closing.done() and not one.loader.there.total()


def test_where_memory_allows_a_model_is_loaded_before_another_leaves():
    async def story():
        one = Play(spare=100 * GB)
        one.cache.release(await one.use("c"))
        task = await one.ask("e")
        assert [*one.loader.loading] == ["e"] and not one.loader.unloading
        await one.failed("e")
        assert isinstance(task.exception(), ModelLoadFailed)
        assert one.states() == {"c": State.READY} and one.loader.num_loads["c"] == 1
        task = await one.ask("e")
        await one.loaded("e")
        assert task.done() and [*one.loader.unloading] == ["c"]

    played(story())


def test_the_room_of_one_that_leaves_is_promised_once():
    """c leaves for a, with more room than a needs; but a fails, and c stays."""

    async def story():
        one = Play(spare=9 * GB)
        await one.use("b")
        one.cache.release(await one.use("c"))
        coming, third = await one.ask("a"), await one.ask("d")
        assert one.states() == {
            "b": State.READY, "c": State.LEAVING, "a": State.LOADING, "d": State.WAITING,
        }  # fmt: skip
        await one.failed("a")
        assert isinstance(coming.exception(), ModelLoadFailed)
        assert one.states()["c"] is State.LEAVING  # for d now
        await one.loaded("d")
        assert third.done() and one.states() == {"b": State.READY, "d": State.READY}

    played(story())


@pytest.mark.parametrize("spare, begins", [(100 * GB, True), (3 * GB, False)])
def test_who_fits_whatever_becomes_of_a_swap_waits_for_none_but_memory(spare, begins):
    """a leaves for e, or stays: there is room for one more of 1 GB beside either."""

    async def story():
        one = Play(sizes=SIZES | {"f": GB}, spare=spare)
        one.cache.release(await one.use("a"))
        await one.ask("e")
        assert one.states() == {"a": State.LEAVING, "e": State.LOADING}
        third = await one.ask("f")
        assert one.states()["f"] is (State.LOADING if begins else State.WAITING)
        await one.failed("e")
        await one.loaded("f")
        assert third.done() and one.states() == {"a": State.READY, "f": State.READY}

    played(story())


@play
async def test_of_those_who_left_for_nothing_each_that_fits_comes_back(one):
    """c doesn't fit beside what came meanwhile, d does."""
    for name in "cd":
        one.cache.release(await one.use(name))
    coming = await one.ask("e")
    await one.unloaded("c")
    await one.unloaded("d")
    one.cache.shelf.entries["b"] = Entry("b", 5 * GB, 1, State.READY)
    await one.failed("e")
    assert isinstance(coming.exception(), ModelLoadFailed)
    assert one.states() == {"b": State.READY, "d": State.LOADING}


@play
async def test_after_a_failed_load_nobody_is_driven_out_for_those_who_left_for_it(one):
    await one.use("b")
    one.cache.release(await one.use("c"))
    coming = await one.ask("a")
    await one.unloaded("c")
    one.cache.release(await one.use("d"))
    await one.failed("a")
    assert isinstance(coming.exception(), ModelLoadFailed)
    assert one.states() == {"b": State.READY, "d": State.READY}  # d was used since, c wasn't


def test_a_model_that_left_while_it_was_asked_for_begins_anew_at_no_progress():
    async def story():
        one = Play(spare=100 * GB)
        entry = await one.use("c")
        entry.progress = 1.0
        one.cache.release(entry)
        await one.ask("e")
        await one.ask("c")
        await one.loaded("e")
        assert one.states()["c"] is State.WAITING
        assert one.cache.shelf.entries["c"].progress == 0.0

    played(story())


@play
async def test_a_caller_who_leaves_ends_nobody_elses_load(one):
    first, second = await one.ask("a"), await one.ask("a")
    first.cancel()
    await one.settle()
    await one.loaded("a")
    assert first.cancelled() and second.result().num_pins == 1


@play
async def test_a_load_that_nobody_waits_for_any_more_is_there_for_the_next(one):
    only = await one.ask("a")
    only.cancel()
    await one.settle()
    await one.loaded("a")
    assert one.cache.shelf.entries["a"].is_idle
    assert (await one.ask("a")).result().num_pins == 1 and one.loader.num_loads["a"] == 1


@play
async def test_nothing_is_loaded_for_callers_who_have_all_left(one):
    streaming, asked = await one.use("c"), await one.ask("e")
    asked.cancel()
    await one.settle()
    one.cache.release(streaming)
    await one.settle()
    assert not one.loader.loading and one.states() == {"c": State.READY}


@play
async def test_a_model_that_is_leaving_and_is_asked_for_is_loaded_when_it_is_gone(one):
    one.cache.release(await one.use("a"))
    one.cache.release(await one.use("b"))
    await one.ask("d")
    other = await one.ask("c")  # a has to leave for it, or b too
    await one.loaded("d")
    leaving = [*one.loader.unloading]
    assert "a" in leaving and not other.done()
    other.cancel()
    again = await one.ask("a")
    for name in leaving:
        await one.unloaded(name)
    for name in [*one.loader.loading]:
        await one.loaded(name)
    for name in [*one.loader.unloading]:
        await one.unloaded(name)
    for name in [*one.loader.loading]:
        await one.loaded(name)
    assert again.result().num_pins == 1 and one.loader.num_loads["a"] == 2


@play
async def test_the_least_recently_used_leaves_and_use_counts_not_load(one):
    for name in ("a", "b"):
        one.cache.release(await one.use(name))
    one.cache.release((await one.ask("a")).result())
    await one.ask("c")
    assert [*one.loader.unloading] == ["b"]


@play
async def test_a_pin_is_given_back_once(one):
    entry = await one.use("a")
    one.cache.release(entry)
    with pytest.raises(ValueError, match="0 pins"):
        one.cache.release(entry)


@play
async def test_use_gives_the_pin_back_whatever_happens(one):
    one.cache.release(await one.use("a"))
    with pytest.raises(KeyError):
        async with one.cache.use("a") as value:
            assert value in one.loader.alive and one.cache.shelf.entries["a"].num_pins == 1
            raise KeyError
    assert one.cache.shelf.entries["a"].is_idle


# ---- random histories


MOVES = ("ask", "ask", "release", "release", "cancel", "loaded", "loaded", "failed", "unloaded",
         "passes", "larger")  # fmt: skip


@given(st.data(), st.sampled_from([0, 3 * GB, 100 * GB]))
def test_whatever_the_history_the_promises_hold(data, spare):
    async def story():
        one = Play(spare=spare)
        tasks, held = [], []
        for _ in range(data.draw(st.integers(1, 25))):
            await move(one, data, tasks, held)
            check(one, tasks, held, spare)
        await bring_to_an_end(one, tasks, held)

    played(story())


async def move(one: Play, data, tasks: list, held: list) -> None:
    """One thing that may happen; nothing, where it can't."""
    what = data.draw(st.sampled_from(MOVES))
    waiting = [task for task in tasks if not task.done()]
    choices = {
        "ask": sorted(SIZES), "release": held, "cancel": waiting,
        "unloaded": sorted(one.loader.unloading),
    }.get(what, sorted(one.loader.loading))  # fmt: skip
    if what == "passes":
        return await one.passes(data.draw(st.sampled_from([1.0, PATIENCE_S + 1])))
    if not choices:
        return
    chosen = data.draw(st.sampled_from(choices))
    match what:
        case "ask":
            tasks.append(asyncio.create_task(one.cache.acquire(chosen)))
        case "release":
            held.remove(chosen)
            one.cache.release(chosen)
        case "cancel":
            chosen.cancel()
        case "unloaded":
            one.loader.unloading[chosen].set_result(None)
        case "loaded":
            one.loader.loaded(chosen)
        case "larger":
            one.loader.loaded(chosen, SIZES[chosen] + GB * data.draw(st.integers(1, 4)))
        case "failed":
            one.loader.failed(chosen)
    if data.draw(st.booleans()):  # or else two things happen at once
        await one.settle()
    else:
        await asyncio.sleep(0)


def check(one: Play, tasks: list, held: list, spare: int) -> None:
    """What holds at every moment. `held` gets the pins that have come."""
    for task in [task for task in tasks if task.done()]:
        tasks.remove(task)
        if task.cancelled():
            continue
        error = task.exception()
        assert error is None or isinstance(error, ModelLoadFailed | ModelsBusy | ModelTooLarge)
        if error is None:
            held.append(task.result())
    for entry in held:
        assert entry.state is State.READY and entry.value in one.loader.alive
        assert one.cache.shelf.entries[entry.name] is entry
    for name, entry in one.cache.shelf.entries.items():
        assert entry.name == name and entry.num_pins >= held.count(entry)


async def bring_to_an_end(one: Play, tasks: list, held: list) -> None:
    """All pins are given back and every load ends: then everybody has an answer, and no pin is
    left; `close` leaves nothing behind."""
    for _ in range(60):
        await one.settle()
        for name in [*one.loader.loading]:
            one.loader.loaded(name)
        for name in [*one.loader.unloading]:
            one.loader.unloading[name].set_result(None)
        await one.settle()
        check(one, tasks, held, 0)
        while held:
            one.cache.release(held.pop())
    assert not tasks
    assert all(entry.num_pins == 0 for entry in one.cache.shelf.entries.values())
    assert all(entry.state is State.READY for entry in one.cache.shelf.entries.values())
    assert one.cache.shelf.num_bytes <= BUDGET
    closing = asyncio.create_task(one.cache.close())
    while not closing.done():
        await one.settle()
        for name in [*one.loader.unloading]:
            one.loader.unloading[name].set_result(None)
    assert one.loader.there.total() == 0 and not one.loader.alive and not one.loader.faults


@given(st.data(), st.sampled_from([0, 3 * GB, 6 * GB]))
def test_memory_never_holds_more_than_the_budget_and_what_is_spare(data, spare):
    """Counted from the beginning of a load to the end of an unload, when models are as large as
    they were reckoned."""

    async def story():
        one = Play(spare=spare)
        tasks, held = [], []
        for _ in range(data.draw(st.integers(1, 25))):
            name = data.draw(st.sampled_from(["a", "b", "c", "d", "e"]))
            tasks.append(await one.ask(name))
            for loading in [*one.loader.loading]:
                what = data.draw(st.sampled_from(["goes on", "loaded", "failed"]))
                if what != "goes on":
                    await getattr(one, what)(loading)
            for unloading in [*one.loader.unloading]:
                if data.draw(st.booleans()):
                    await one.unloaded(unloading)
            check(one, tasks, held, spare)
            while held and data.draw(st.booleans()):
                one.cache.release(held.pop())
            assert one.loader.most <= BUDGET + spare
        await bring_to_an_end(one, tasks, held)

    played(story())
