"""One of several models: what stays of it when its engine has left, and what must not."""

import asyncio
import types

from labkit.fleet.models.served import Served
from labkit.serving import options
from labkit.serving.engine_client import EngineDown
from labkit.serving.messages import Held, Sight


def served() -> Served:
    alone = options.parse(["--model", "tiny", "--served-model-name", "small", "--num-blocks", "8"])
    return Served(["small", "alias"], alone)


def pretend_ready(one: Served, send=lambda message: None) -> None:
    """As if an engine served that takes messages and answers none."""
    one.service.engine.status = "ready"
    one.service.engine.home = types.SimpleNamespace(send=send, pid=None)
    one.engine = asyncio.create_task(asyncio.Event().wait())


def test_a_question_that_was_under_way_when_the_engine_left_has_an_end():
    """Else every later view would wait for it."""

    async def story():
        one = served()
        pretend_ready(one)
        question = asyncio.create_task(one.service.engine.look())
        view = asyncio.create_task(one.service.views.look())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await one.stop()
        assert isinstance((await asyncio.gather(question, return_exceptions=True))[0], EngineDown)
        await view
        assert one.service.views.looking.done()

    asyncio.run(story())


def test_what_the_engine_held_is_not_shown_any_more():
    async def story():
        one = served()
        pretend_ready(one)
        one.service.views.sight = Sight(1, [Held("a", "running", 1, [1], 0, 0)], 1, 0)
        await one.stop()
        state = one.service.views.live_state()
        assert (state["status"], state["kv_usage"], state["running"]) == ("idle", 0, 0)
        assert one.service.engine_pid is None and one.loaded_bytes() == 0

    asyncio.run(story())


def test_each_life_has_an_engine_of_its_own_and_the_counters_go_on():
    async def story():
        one = served()
        first, metrics = one.service.engine, one.service.metrics
        pretend_ready(one)
        await one.stop()
        assert one.service.engine is not first and one.service.metrics is metrics
        assert one.service.views.engine is one.service.engine
        await one.stop()  # twice is once

    asyncio.run(story())


def test_both_names_are_known_to_its_routes():
    assert served().service.names == {"small", "alias"} and served().name == "small"
