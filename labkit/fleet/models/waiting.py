"""Requests that wait until their model is there: no more than may, none whose client has left."""

import asyncio
from collections import Counter

from labkit.fleet.model_cache import (
    RETRY_AFTER_S,
    Entry,
    ModelCache,
    ModelLoadFailed,
    ModelsBusy,
    ModelTooLarge,
    State,
)
from labkit.serving.errors import APIError
from labkit.serving.streams import gone


class Waiting:
    """Pins models for requests; `most` may wait for each."""

    def __init__(self, cache: ModelCache, most: int):
        self.cache, self.most = cache, most
        self.count: Counter[str] = Counter()  # who waits, by model
        self.tasks: set[asyncio.Task] = set()
        self.is_over = False

    async def pin(self, name: str, receive, deadline_s: float | None = None) -> Entry | None:
        """The entry of a model that is loaded, with a pin for the caller, who must release it.

        None when the client has left meanwhile: `receive` is asked, and its body must have been
        read. Raises APIError, after `deadline_s` at the latest.
        """
        if self.is_over:
            raise draining()
        entry = self.cache.shelf.entries.get(name)
        if entry is not None and entry.state is State.READY:
            return await self.cache.acquire(name)  # it is there: nothing to wait for
        if self.count[name] >= self.most:
            told = f"{self.count[name]} requests wait for model {name!r}, {self.most} may"
            raise APIError(429, told, code="too_many_requests", retry_after=RETRY_AFTER_S)
        self.count[name] += 1
        try:
            return await self.wait(name, receive, deadline_s)
        except (ModelTooLarge, ModelsBusy, ModelLoadFailed) as error:
            raise as_api_error(error) from None
        finally:
            self.count[name] -= 1

    async def wait(self, name: str, receive, deadline_s: float | None) -> Entry | None:
        acquiring = asyncio.create_task(self.cache.acquire(name))
        leaving = asyncio.create_task(gone(receive))
        self.tasks.add(acquiring)
        is_ours = False
        try:
            either = {acquiring, leaving}
            await asyncio.wait(either, timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                return None
            if not acquiring.done():
                told = f"model {name!r} was not there within {deadline_s:g} s, its deadline"
                raise APIError(408, told, "deadline_ms", "deadline", may_retry=False)
            if acquiring.cancelled():  # by `end`
                raise draining()
            entry = acquiring.result()
            is_ours = True
            return entry
        finally:
            self.tasks.discard(acquiring)
            leaving.cancel()
            if not is_ours:
                acquiring.cancel()
                acquiring.add_done_callback(self.give_back)

    def give_back(self, acquiring: asyncio.Task) -> None:
        """A pin that came when nobody wanted it any more."""
        if not acquiring.cancelled() and acquiring.exception() is None:
            self.cache.release(acquiring.result())

    def end(self) -> None:
        """The server ends: who waits is told so."""
        self.is_over = True
        for task in self.tasks:
            task.cancel()


def draining() -> APIError:
    return APIError(503, "the server is shutting down", code="draining", retry_after=5)


def as_api_error(error: Exception) -> APIError:
    """Why a request has no model, as its client is told."""
    match error:
        case ModelTooLarge():
            return APIError(400, str(error), "model", "model_too_large")
        case ModelsBusy():
            return APIError(503, str(error), code="models_busy", retry_after=RETRY_AFTER_S)
    return APIError(503, str(error), "model", "model_load_failed", may_retry=False)
