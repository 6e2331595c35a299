"""The HTTP API: OpenAI's routes, the requests' own, health, metrics, the page."""

import asyncio
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from fastapi import Body, FastAPI, Header, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from labkit import __version__
from labkit.model.sampling_params import INTEGERS
from labkit.serving import errors, schema
from labkit.serving.answers import Shapes
from labkit.serving.bodies import ChatBody, Common, CompletionBody
from labkit.serving.errors import JSON, APIError
from labkit.serving.lifecycle import Asked, Ticket
from labkit.serving.service import Service
from labkit.serving.streams import StreamedAnswer, WholeAnswer
from labkit.serving.text import TemplateRefusal

PAGE = Path(__file__).parent / "page"
PAGE_POLICY = "default-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'"
LIVE_PAUSE_S = 0.25
LONG_TEXT = 20_000  # characters; a longer one is turned into tokens beside the event loop
Prefer = Annotated[
    str | None, Header(description="respond-async: 202 at once and no stream; see GET /v1/requests")
]
MOST_TOKENS = INTEGERS["max_tokens"][1]  # until it is known how many fit


def create_app(service: Service) -> FastAPI:
    """The routes over one service."""
    app = FastAPI(
        title="labkit", version=__version__, docs_url=None, redoc_url=None,
        description="OpenAI's API, and what labkit has beyond it.",
    )  # fmt: skip
    app.add_exception_handler(APIError, errors.on_api_error)
    app.add_exception_handler(RequestValidationError, errors.on_validation_error)
    app.add_exception_handler(HTTPException, errors.on_http_error)
    app.add_exception_handler(Exception, errors.on_any_error)
    add_openai(app, service)
    add_requests(app, service)
    add_operation(app, service)
    add_page(app, service)
    app.openapi = lambda: schema.document(app, bool(service.options.api_key))
    return app


def add_openai(app: FastAPI, service: Service) -> None:
    @app.get("/v1/models", response_model=schema.Models, tags=["OpenAI"])
    async def models():
        """The models that are served: one."""
        return JSON({"object": "list", "data": [service.views.card()]})

    @app.get(
        "/v1/models/{model:path}", response_model=schema.Model, responses=schema.errors(404),
        tags=["OpenAI"],
    )  # fmt: skip
    async def model(model: str):
        """One model."""
        refuse_unknown_model(service, model)
        return JSON(service.views.card())

    @app.post("/v1/completions", tags=["OpenAI"], **schema.answer(schema.Completion))
    async def completions(
        body: Annotated[CompletionBody, Body()], request: Request, prefer: Prefer = None
    ):
        """Continues a prompt: text or token ids, one or several."""
        arrival = arrival_of(request)
        refuse_unknown_model(service, body.model)
        is_long = sum(map(len, body.prompt)) > LONG_TEXT
        prompts = [await to_tokens(service, prompt, is_long) for prompt in body.prompt]
        asked = as_asked(
            "completions", body, prompts, body.max_tokens, body.logprobs, request
        )  # fmt: skip
        return await answer(service, asked, request, arrival, prefer)

    @app.post("/v1/chat/completions", tags=["OpenAI"], **schema.answer(schema.ChatCompletion))
    async def chat(body: Annotated[ChatBody, Body()], request: Request, prefer: Prefer = None):
        """Answers a conversation, in the model's chat template."""
        arrival = arrival_of(request)
        refuse_unknown_model(service, body.model)
        messages = [message.plain() for message in body.messages]
        text = sum(len(message["content"]) for message in messages)
        try:
            prompt = await beside(text > LONG_TEXT, service.text.encode_chat, messages)
        except TemplateRefusal as error:
            told = f"the chat template refuses the messages: {error}"
            raise APIError(400, told, "messages") from None
        asked = as_asked("chat", body, [prompt], body.limit(), body.num_logprobs(), request)
        try:
            return await answer(service, asked, request, arrival, prefer)
        except APIError as error:
            if error.param == "max_tokens" and body.max_tokens is None:
                error.param = "max_completion_tokens"
            raise


def arrival_of(request: Request) -> float:
    """When a request came: it may have waited for its model to be loaded."""
    return request.scope.get("labkit.arrival") or time.monotonic()


async def beside(is_long: bool, work, *arguments):
    """Runs short work here, and long work in a thread: streams go on meanwhile."""
    return await asyncio.to_thread(work, *arguments) if is_long else work(*arguments)


async def to_tokens(service: Service, prompt: str | list[int], is_long: bool) -> list[int]:
    return await beside(is_long, service.text.encode, prompt) if isinstance(prompt, str) else prompt


def refuse_unknown_model(service: Service, name: str | None) -> None:
    if name is not None and name not in service.names:
        told = f"there is no model {name!r}; this server has {service.model!r} (GET /v1/models)"
        raise APIError(404, told, "model", "model_not_found")


def as_asked(
    endpoint: str, body: Common, prompts: list[list[int]], max_tokens: int | None,
    logprobs: int | None, request: Request,
) -> Asked:  # fmt: skip
    """A checked request. Raises APIError."""
    if body.stream_options is not None and not body.stream:
        raise APIError(
            400, "stream_options is given without stream; leave it out, or set stream to true",
            "stream_options",
        )  # fmt: skip
    try:
        params = body.sampling(MOST_TOKENS if max_tokens is None else max_tokens, logprobs)
    except ValueError as error:
        raise errors.from_value_error(error, type(body).model_fields) from None
    label = body.request_id or request.headers.get("x-request-id", "")
    return Asked(
        endpoint, prompts, params, bool(body.stream),
        bool(body.stream_options and body.stream_options.include_usage), label[:256],
        body.user or "", body.priority or 0, max_tokens,
        None if body.deadline_ms is None else body.deadline_ms / 1000, body.cache_salt or "",
    )  # fmt: skip


async def answer(
    service: Service, asked: Asked, request: Request, arrival: float, prefer: str | None
) -> Response:
    """Puts a request in line; its answer goes out as it was asked for.

    Who prefers `respond-async` (RFC 7240) is told its id at once, and looks at /v1/requests; it
    needs no connection meanwhile, of which a browser has six.
    """
    client = ":".join(map(str, request.client or ()))
    lets_go = "respond-async" in re.split(r"[\s,;]+", (prefer or "").lower())
    asked = replace(asked, stream=False) if lets_go else asked  # no pieces pile up
    ticket = await service.submit(asked, client, arrival)
    if lets_go:
        ticket.let_go = True
        if not ticket.is_open:  # it ended before anybody knew that nobody waits for its text
            ticket.forget_text()
        headers = {"preference-applied": "respond-async", "x-request-id": ticket.id}
        return JSON({"id": ticket.id, "state": ticket.state}, 202, headers=headers)
    shapes = Shapes(ticket, service.text, service.model)
    if asked.stream:
        timeout = service.options.write_timeout
        return StreamedAnswer(ticket, shapes, service.registry, timeout)
    return WholeAnswer(ticket, shapes, service.registry)


def add_requests(app: FastAPI, service: Service) -> None:
    def found(request_id: str) -> Ticket:
        ticket = service.registry.find(request_id)
        if ticket is None:
            told = f"there is no request {request_id!r}; GET /v1/requests lists those that are open"
            raise APIError(404, told, "request_id")
        return ticket

    @app.get("/v1/requests", response_model=schema.Requests, tags=["requests"])
    async def requests():
        """Every open request, with its state, tokens and blocks."""
        await service.views.look()
        views = [service.views.request(ticket) for ticket in service.registry.tickets.values()]
        return JSON({"object": "list", "mine": service.mine, "data": views})

    @app.get(
        "/v1/requests/{request_id}", response_model=schema.RequestView,
        responses=schema.errors(404), tags=["requests"],
    )  # fmt: skip
    async def request(request_id: str):
        """One request, open or among the last that ended."""
        ticket = found(request_id)
        await service.views.look()
        return JSON(service.views.request(ticket))

    @app.delete(
        "/v1/requests/{request_id}", response_model=schema.Cancelled,
        responses=schema.errors(404), tags=["requests"],
    )  # fmt: skip
    async def cancel(request_id: str):
        """Ends a request; `cancelled` says whether it was open until now."""
        ticket = found(request_id)
        cancelled = await service.cancel(ticket)
        return JSON({"id": ticket.id, "cancelled": cancelled, "state": ticket.state})


def add_operation(app: FastAPI, service: Service) -> None:
    @app.get(
        "/health", response_model=schema.Health, responses=schema.errors(503, schema.Health),
        tags=["operation"],
    )  # fmt: skip
    @app.get(
        "/ready", response_model=schema.Health, responses=schema.errors(503, schema.Health),
        tags=["operation"],
    )  # fmt: skip
    async def health():
        """200 while requests are answered, else 503 with the reason."""
        return JSON(service.views.health(), 200 if service.status == "ready" else 503)

    @app.get("/metrics", response_class=Response, responses=schema.FIGURES, tags=["operation"])
    async def metrics():
        """Figures for Prometheus."""
        await service.views.look()
        service.metrics.ready.set(service.status == "ready")
        service.metrics.look_at(service.engine_pid)
        text = await asyncio.to_thread(service.metrics.text)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def add_page(app: FastAPI, service: Service) -> None:
    files = {path.name: path for path in PAGE.iterdir() if path.suffix in KINDS}

    def file(name: str) -> Response:
        headers = {"content-security-policy": PAGE_POLICY, "cache-control": "no-cache"}
        return FileResponse(files[name], media_type=KINDS[files[name].suffix], headers=headers)

    @app.get("/", include_in_schema=False)
    async def page():
        return file("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def page_file(name: str):
        if name not in files:
            raise HTTPException(404)
        return file(name)

    @app.get("/live", include_in_schema=False)
    async def live():
        async def states():
            while not service.closing:
                yield await service.views.live_event()
                await asyncio.sleep(LIVE_PAUSE_S)

        headers = {"cache-control": "no-cache"}
        return StreamingResponse(states(), media_type="text/event-stream", headers=headers)


KINDS = {
    ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}  # fmt: skip
