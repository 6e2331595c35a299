"""Several models behind one API: the body says which, and its model stays until it is answered."""

import asyncio
import json
import time
from contextvars import ContextVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

from labkit.fleet.model_cache import Entry
from labkit.fleet.models.served import Served
from labkit.serving.api import as_asked
from labkit.serving.bodies import ChatBody, Common, CompletionBody
from labkit.serving.errors import UNREADABLE, APIError
from labkit.serving.metrics import OTHER
from labkit.serving.streams import whole_body

BODIES = {"/v1/completions": CompletionBody, "/v1/chat/completions": ChatBody}
asked_model: ContextVar[str] = ContextVar("asked_model", default=OTHER)  # of the request under way


class ModelsApp:
    """ASGI. `models` is a `models_server.Models`; `others` answers whatever asks no model."""

    def __init__(self, models, others):
        self.models, self.others = models, others
        self.holding: set[asyncio.Task] = set()  # pins of requests that their clients let go of

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in BODIES:
            return await self.others(scope, receive, send)
        try:
            await self.answer(scope, receive, send)
        except APIError as error:
            await error.response()(scope, receive, send)
        except HTTPException as error:  # of `Guards`: the body is too large, or doesn't come
            refusal = APIError(error.status_code, str(error.detail)).response()
            refusal.headers.update(error.headers or {})
            await refusal(scope, receive, send)

    async def answer(self, scope, receive, send) -> None:
        scope["labkit.arrival"] = time.monotonic()
        body = await whole_body(receive)
        if body is None:
            return
        asked = checked(scope["path"], body)
        if asked is None:  # no model could answer it, and any of them can say why
            return await self.models.default.app(scope, replayed(body, receive), send)
        served = self.models.find(asked.model)
        refuse_wrong_values(asked, scope)
        asked_model.set(served.name)
        self.models.metrics.asked(served.name, self.models.state(served))
        deadline_s = asked.deadline_ms and asked.deadline_ms / 1000
        entry = await self.models.waiting.pin(served.name, receive, deadline_s)
        if entry is not None:
            await self.pass_on(entry, body, scope, receive, send)

    async def pass_on(self, entry: Entry, body: bytes, scope, receive, send) -> None:
        """Hands a request to its model, whose pin is given back when all is over."""
        served, begun = entry.value, {}

        async def noted(message) -> None:
            if message["type"] == "http.response.start":
                begun.update(message)
            await send(message)

        try:
            await served.app(scope, replayed(body, receive), noted)
        finally:
            ticket = let_go(served, begun)
            if ticket is None:
                self.models.cache.release(entry)
            else:
                self.hold(entry, ticket)

    def hold(self, entry: Entry, ticket) -> None:
        """Keeps a pin until a request has ended that nobody waits for."""

        async def until_it_ends() -> None:
            try:
                while ticket.is_open:
                    await ticket.wake.wait()
                    ticket.wake.clear()
            finally:
                self.models.cache.release(entry)

        task = asyncio.create_task(until_it_ends())
        self.holding.add(task)
        task.add_done_callback(self.holding.discard)


def checked(path: str, body: bytes) -> Common | None:
    """A body as its route will see it; None for one that is refused: no model is loaded for it."""
    try:
        return BODIES[path].model_validate(json.loads(body))
    except UNREADABLE:
        return None


def refuse_wrong_values(body: Common, scope) -> None:
    """What a route finds when it has made tokens of the prompt, and its model is loaded: it is
    told before. Raises APIError."""
    limits = body.max_tokens, body.logprobs
    if isinstance(body, ChatBody):
        limits = body.limit(), body.num_logprobs()
    as_asked("", body, [], *limits, Request(scope))


def let_go(served: Served, begun: dict):
    """The open ticket of a request whose client has let go of it (Prefer: respond-async)."""
    if begun.get("status") != 202:
        return None
    name = dict(begun["headers"]).get(b"x-request-id", b"").decode()
    return served.service.registry.tickets.get(name)


def replayed(body: bytes, receive):
    """`receive` for who has not seen the body yet."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def again():
        return left.pop() if left else await receive()

    return again
