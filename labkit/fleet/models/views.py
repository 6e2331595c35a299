"""What can be seen of a server of several models, and the routes that ask none of them."""

import asyncio

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from prometheus_client import generate_latest
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from labkit import __version__
from labkit.fleet.models.served import Served
from labkit.serving import errors, schema
from labkit.serving.errors import JSON, APIError

KIND = "text/plain; version=0.0.4; charset=utf-8"


class Model(schema.Model):
    """`bytes` are what it takes, or will need while it isn't loaded; null before that is known."""

    root: str  # the model that this name stands for
    state: str  # idle, waiting (for memory), loading, ready, leaving
    progress: float  # of loading
    bytes: int | None
    waiting_requests: int


class Models(BaseModel):
    object: str
    data: list[Model]


class OneHealth(BaseModel):
    state: str
    detail: str
    engine_pid: int | None
    engine_restarts: int
    open_requests: int


class Health(schema.Health):
    models: dict[str, OneHealth]


def create_front(models) -> FastAPI:
    """Routes over all models; what they don't have is asked of the first model's app (the page)."""
    front = FastAPI(title="labkit", version=__version__, docs_url=None, redoc_url=None)
    front.add_exception_handler(APIError, errors.on_api_error)
    front.add_exception_handler(RequestValidationError, errors.on_validation_error)
    front.add_exception_handler(HTTPException, errors.on_http_error)
    front.add_exception_handler(Exception, errors.on_any_error)
    add_models(front, models)
    add_requests(front, models)
    add_operation(front, models)
    front.router.default = models.default.app
    needs_key = bool(models.options.api_key)
    front.openapi = lambda: document(front, models.default.app, needs_key)
    return front


def document(front: FastAPI, app: FastAPI, needs_key: bool) -> dict:
    """The OpenAPI document: that of a model's app, with what several models have in its place."""
    one, several = schema.document(app, needs_key), schema.document(front, needs_key)
    schemas = one["components"]["schemas"] | several["components"]["schemas"]
    return one | {
        "paths": one["paths"] | several["paths"],
        "components": one["components"] | {"schemas": schemas},
    }


def add_models(front: FastAPI, models) -> None:
    @front.get("/v1/models", response_model=Models, tags=["OpenAI"])
    async def all_models():
        """The models that are served, by every name; whether they are loaded, and their bytes."""
        cards = [card(models, served, n) for served in models.all for n in served.names]
        return JSON({"object": "list", "data": cards})

    @front.get(
        "/v1/models/{model:path}", response_model=Model, responses=schema.errors(404),
        tags=["OpenAI"],
    )  # fmt: skip
    async def model(model: str):
        """One model."""
        return JSON(card(models, models.find(model), model))


def card(models, served: Served, name: str) -> dict:
    """A model as /v1/models tells it."""
    entry = models.cache.shelf.entries.get(served.name)
    expected = served.need and served.need.total
    return served.service.views.card() | {
        "id": name,
        "max_model_len": served.info and served.info.max_model_len,
        "root": served.name,
        "state": models.state(served),
        "progress": round(entry.progress, 3) if entry else 0.0,
        "bytes": entry.num_bytes if entry and entry.num_bytes else expected,
        "waiting_requests": models.waiting.count[served.name],
    }


def add_requests(front: FastAPI, models) -> None:
    def found(request_id: str) -> tuple[Served, object]:
        for served in models.all:
            if ticket := served.service.registry.find(request_id):
                return served, ticket
        told = f"there is no request {request_id!r}; GET /v1/requests lists those that are open"
        raise APIError(404, told, "request_id")

    one = {"path": "/v1/requests/{request_id}", "responses": schema.errors(404)}

    @front.get("/v1/requests", response_model=schema.Requests, tags=["requests"])
    async def requests():
        """Every open request of every model, with its state, tokens and blocks."""
        await asyncio.gather(*(served.service.views.look() for served in models.all))
        services = [served.service for served in models.all]
        views = [s.views.request(t) for s in services for t in s.registry.tickets.values()]
        mine = sorted({exercise for service in services for exercise in service.mine})
        return JSON({"object": "list", "mine": mine, "data": views})

    @front.get(**one, response_model=schema.RequestView, tags=["requests"])
    async def request(request_id: str):
        """One request, open or among the last that ended."""
        served, ticket = found(request_id)
        await served.service.views.look()
        return JSON(served.service.views.request(ticket))

    @front.delete(**one, response_model=schema.Cancelled, tags=["requests"])
    async def cancel(request_id: str):
        """Ends a request; `cancelled` says whether it was open until now."""
        served, ticket = found(request_id)
        cancelled = await served.service.cancel(ticket)
        return JSON({"id": ticket.id, "cancelled": cancelled, "state": ticket.state})


def add_operation(front: FastAPI, models) -> None:
    @front.get(
        "/health", response_model=Health, responses=schema.errors(503, Health), tags=["operation"]
    )
    @front.get(
        "/ready", response_model=Health, responses=schema.errors(503, Health), tags=["operation"]
    )
    async def health():
        """200 while requests are answered, if need be after their model is loaded; else 503."""
        return JSON(healths(models), 200 if models.status == "ready" else 503)

    @front.get("/metrics", response_class=Response, tags=["operation"])
    async def metrics():
        """Figures for Prometheus."""
        await asyncio.gather(*(served.service.views.look() for served in models.all))
        text = await asyncio.to_thread(generate_latest, models.look_at_metrics())
        return Response(text, media_type=KIND)


def healths(models) -> dict:
    """The server's health, and that of each model."""
    each = {served.name: health_of(models, served) for served in models.all}
    return {
        "status": models.status,
        "detail": models.detail,
        "model": models.default.name,
        "engine_pid": models.default.service.engine_pid,
        "engine_restarts": sum(one["engine_restarts"] for one in each.values()),
        "open_requests": sum(one["open_requests"] for one in each.values()),
        "models": each,
    }


def health_of(models, served: Served) -> dict:
    told = served.service.views.health()
    kept = {name: told[name] for name in OneHealth.model_fields if name in told}
    return {"state": models.state(served), **kept}
