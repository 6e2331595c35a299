"""The front of all replicas: one OpenAI endpoint, whichever replica answers.

It reads a request to choose a replica by (`about`), and never looks into an answer.
"""

import asyncio
import time

import msgspec
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from starlette.exceptions import HTTPException

from labkit import __version__
from labkit.fleet.ray_serve.about import Prompts
from labkit.fleet.ray_serve.inward import Call
from labkit.fleet.ray_serve.passing import PassedOn, Replicas
from labkit.serving import errors
from labkit.serving.errors import JSON, APIError

ANSWERS = ("/v1/completions", "/v1/chat/completions")
PASSED_HEADERS = (b"content-type", b"prefer", b"x-request-id")


def create_front(replicas: Replicas, prompts: Prompts) -> FastAPI:
    """The routes over all replicas."""
    app = FastAPI(
        title="labkit", version=__version__, docs_url=None, redoc_url=None, openapi_url=None
    )  # fmt: skip
    app.add_exception_handler(APIError, errors.on_api_error)
    app.add_exception_handler(HTTPException, errors.on_http_error)
    app.add_exception_handler(Exception, errors.on_any_error)
    add_answers(app, replicas, prompts)
    add_requests(app, replicas)
    add_operation(app, replicas, prompts)
    return app


def add_answers(app: FastAPI, replicas: Replicas, prompts: Prompts) -> None:
    async def answer(request: Request) -> PassedOn:
        body = await request.body()
        model = prompts.model(body)
        about = await asyncio.to_thread(prompts.about, request.url.path, body, model)
        return PassedOn(replicas, call_of(request, body), model, about)

    for path in ANSWERS:
        app.add_api_route(path, answer, methods=["POST"], response_model=None)


def call_of(request: Request, body: bytes = b"") -> Call:
    headers = [pair for pair in request.headers.raw if pair[0].lower() in PASSED_HEADERS]
    client = request.client and (request.client.host, request.client.port)
    return Call(request.method, request.url.path, body, headers, client)


def add_requests(app: FastAPI, replicas: Replicas) -> None:
    async def open_ones() -> list[dict]:
        found = await replicas.all(Call("GET", "/v1/requests"))
        return [
            one | {"replica": name}
            for name, _, body in found
            for one in msgspec.json.decode(body)["data"]
        ]

    @app.get("/v1/requests")
    async def requests():
        """The open requests of all replicas."""
        return JSON({"object": "list", "data": await open_ones()})

    @app.api_route("/v1/requests/{request_id}", methods=["GET", "DELETE"])
    async def request(request: Request, request_id: str):
        """One request, by its `id` or the x-request-id of its answer, which is its label: its
        replica knows it, the others answer 404."""
        labels = {one["label"]: one["id"] for one in await open_ones()}
        path = f"/v1/requests/{labels.get(request_id, request_id)}"
        for name, status, body in await replicas.all(Call(request.method, path)):
            if status != 404:
                return JSON(msgspec.json.decode(body) | {"replica": name}, status)
        told = f"there is no request {request_id!r}; GET /v1/requests lists those that are open"
        raise APIError(404, told, "request_id")


def add_operation(app: FastAPI, replicas: Replicas, prompts: Prompts) -> None:
    created = int(time.time())

    @app.get("/v1/models")
    async def models():
        """All that can be asked for, in memory or not."""
        common = {"object": "model", "created": created, "owned_by": "labkit"}
        cards = [{"id": name} | common for name in prompts.models]
        return JSON({"object": "list", "data": cards})

    @app.get("/health")
    @app.get("/ready")
    async def health():
        """200 while a replica serves."""
        found = [
            msgspec.json.decode(body) | {"replica": name}
            for name, _, body in await replicas.all(Call("GET", "/health"))
        ]
        num_ready = sum(one["status"] == "ready" for one in found)
        told = {"status": "ready" if num_ready else "starting"}
        told |= {"detail": f"{num_ready} engines serve", "replicas": found}
        return JSON(told, 200 if num_ready else 503)

    @app.get("/metrics")
    async def metrics():
        """The figures of all replicas, told apart by the label `replica`."""
        found = await replicas.all(Call("GET", "/metrics"))
        kind = "text/plain; version=0.0.4; charset=utf-8"
        texts = [(name, body.decode()) for name, _, body in found]
        return PlainTextResponse(await asyncio.to_thread(merged, texts), media_type=kind)

    @app.get("/")
    async def page():
        told = f"labkit serves {', '.join(prompts.models)}; GET /health shows all replicas.\n"
        return PlainTextResponse(told + "The page with the live engine is that of one server.\n")


def merged(texts: list[tuple[str, str]]) -> bytes:
    """Prometheus' text of several replicas as one, each sample with its replica's name."""
    families = {}
    for name, text in texts:
        for family in text_string_to_metric_families(text):
            known = families.setdefault(family.name, family)
            samples = [s._replace(labels=s.labels | {"replica": name}) for s in family.samples]
            known.samples = samples if known is family else known.samples + samples
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Families(families.values()))
    return generate_latest(registry)


class Families:
    """Metrics that were read elsewhere, as a collector."""

    def __init__(self, families):
        self.families = families

    def collect(self):
        return self.families
