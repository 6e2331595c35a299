"""What Ray raises when a replica is lost, or fails, and what the front makes of it."""

import asyncio

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install .[ray]")
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError  # noqa: E402
from ray.serve.exceptions import BackPressureError  # noqa: E402

from labkit.fleet.ray_serve.about import About  # noqa: E402
from labkit.fleet.ray_serve.inward import Call  # noqa: E402
from labkit.fleet.ray_serve.passing import ReplicaLost, Replicas  # noqa: E402
from labkit.serving.errors import APIError  # noqa: E402

RAISED_BY_CODE = RayTaskError("stream", "a traceback", ValueError("in the replica"))


class Handle:
    """A handle whose only call yields a name, and then fails."""

    def __init__(self, error):
        self.error, self.cancelled, self.stream = error, False, self

    def options(self, **options):
        assert options == {"stream": True, "multiplexed_model_id": "tiny"}
        return self

    def remote(self, call, model, about):
        self.answer = self.parts()
        return self

    def __aiter__(self):
        return self.answer

    def __anext__(self):
        return anext(self.answer)

    async def parts(self):
        yield "one"
        raise self.error

    def cancel(self):
        self.cancelled = True


def ask(error):
    handle, got = Handle(error), []

    async def read():
        async for part in Replicas(handle).stream(Call("POST", "/"), "tiny", About()):
            got.append(part)

    try:
        asyncio.run(read())
    finally:
        assert got == ["one"] and handle.cancelled


@pytest.mark.parametrize(
    "error", [ActorDiedError(), ActorUnavailableError("away", b"x" * 16)], ids=["died", "away"]
)
def test_a_replica_that_is_gone_is_lost(error):
    with pytest.raises(ReplicaLost):
        ask(error)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (RAISED_BY_CODE, 500, "replica_failed"),
        (RAISED_BY_CODE.as_instanceof_cause(), 500, "replica_failed"),
        (BackPressureError(num_queued_requests=3, max_queued_requests=3), 503, "no_replica"),
        (TimeoutError(), 503, "no_replica"),
    ],
    ids=["error", "its cause", "full", "late"],
)
def test_everything_else_is_an_error_of_the_api(error, status, code):
    with pytest.raises(APIError) as caught:
        ask(error)
    assert (caught.value.status, caught.value.code) == (status, code)
