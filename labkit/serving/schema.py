"""The shapes of answers, for the OpenAPI document: what a client can rely on."""

from fastapi import FastAPI
from pydantic import BaseModel

from labkit.serving.errors import ErrorBody
from labkit.serving.guards import OPEN_PATHS


class Model(BaseModel):
    id: str
    object: str
    created: int
    owned_by: str
    max_model_len: int | None = None


class Models(BaseModel):
    object: str
    data: list[Model]


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]


class Message(BaseModel):
    role: str
    content: str


class ChatChoice(BaseModel):
    index: int
    message: Message
    logprobs: dict | None
    finish_reason: str


class ChatCompletion(BaseModel):
    id: str
    object: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class CompletionChoice(BaseModel):
    index: int
    text: str
    logprobs: dict | None
    finish_reason: str


class Completion(BaseModel):
    id: str
    object: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


class RequestView(BaseModel):
    """One request from socket to block. Seconds count from its arrival."""

    id: str
    label: str | None
    endpoint: str
    model: str
    tenant: str | None
    priority: int
    deadline_s: float | None
    state: str
    finish_reason: str | None
    streaming: bool
    client: str
    age_s: float
    queue_s: float
    ttft_s: float | None
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    blocks: int
    host_blocks: int
    preemptions: int
    unsent_tokens: int
    dropped: str | None


class Going(BaseModel):
    """A request whose client has let go of it (Prefer: respond-async)."""

    id: str
    state: str


class Requests(BaseModel):
    object: str
    mine: list[str]  # exercises of which a learner's own parts are at work (serve --mine)
    data: list[RequestView]


class Cancelled(BaseModel):
    id: str
    cancelled: bool
    state: str


class Health(BaseModel):
    status: str
    detail: str
    model: str
    engine_pid: int | None
    engine_restarts: int
    open_requests: int


REASONS = {
    400: "The request is at fault; `param` names the field",
    401: "The API key is missing or wrong",
    403: "The Host header names another machine",
    404: "There is no such thing",
    408: "The deadline passed before the first token",
    409: "The request was cancelled",
    413: "The body is too large",
    415: "The body is no JSON",
    429: "Too many requests wait; see Retry-After",
    500: "The engine failed on this request",
    503: "The engine is starting, restarting or draining; see Retry-After",
}


EVENT = {
    "type": "object", "required": ["data"], "description": "each event: JSON, at the end [DONE]",
    "properties": {"data": {"type": "string"}},
}  # fmt: skip


def errors(*statuses) -> dict:
    """Entries of the document for these statuses; a model may stand last."""
    model = statuses[-1] if isinstance(statuses[-1], type) else ErrorBody
    numbers = [status for status in statuses if isinstance(status, int)]
    return {number: {"model": model, "description": REASONS[number]} for number in numbers}


def answer(model: type) -> dict:
    """What a route that generates promises."""
    streamed = {"schema": EVENT, "example": 'data: {"choices": [...]}\n\ndata: [DONE]'}
    fine = {
        "model": model,
        "content": {"text/event-stream": streamed},
        "description": "The answer; with `stream` server-sent events",
    }
    wrong = errors(400, 401, 403, 404, 408, 409, 413, 415, 429, 500, 503)
    going = {"model": Going, "description": "It is in line (Prefer: respond-async)"}
    return {"responses": {200: fine, 202: going, **wrong}}


def document(app: FastAPI, needs_key: bool = False) -> dict:
    """The OpenAPI document. The framework promises 422 for what is refused; here it is 400.

    `needs_key` says whether the server was started with --api-key."""
    if app.openapi_schema is None:
        made = FastAPI.openapi(app)
        for path in made["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
                for status in (401, 403):
                    operation["responses"].setdefault(
                        str(status),
                        {
                            "description": REASONS[status],
                            "content": {"application/json": {"schema": REF}},
                        },
                    )
        if needs_key:
            told = "the key that the server was started with (--api-key)"
            made["components"]["securitySchemes"] = {
                "key": {"type": "http", "scheme": "bearer", "description": told}
            }
            for path, operations in made["paths"].items():
                for operation in operations.values():
                    operation["security"] = [] if path in OPEN_PATHS else [{"key": []}]
        for name in ("HTTPValidationError", "ValidationError"):
            made["components"]["schemas"].pop(name, None)
        app.openapi_schema = made
    return app.openapi_schema


REF = {"$ref": "#/components/schemas/ErrorBody"}
FIGURES = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "The figures"}
}
