"""Errors as OpenAI's clients know them: a status, and a message that names field and remedy."""

import re
import reprlib

import msgspec
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

KINDS = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error", 408: "timeout_error", 409: "cancelled",
    413: "invalid_request_error", 415: "invalid_request_error", 429: "rate_limit_error",
}  # fmt: skip


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None = None
    code: str | int | None = None


class ErrorBody(BaseModel):
    """What every answer that isn't 2xx has."""

    error: ErrorDetail


class APIError(Exception):
    """An error that a client gets to see. `param` is the field that is at fault."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
        may_retry: bool = True,
    ):
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.retry_after, self.may_retry = retry_after, may_retry

    def body(self) -> dict:
        kind = KINDS.get(self.status, "server_error")
        detail = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": detail}

    def headers(self) -> dict[str, str]:
        """Retry-After, and what OpenAI's clients look at before they try again by themselves."""
        found = {}
        if self.retry_after is not None:
            found["retry-after"] = str(self.retry_after)
        if not self.may_retry:
            found["x-should-retry"] = "false"
        return found

    def response(self) -> Response:
        return JSON(self.body(), self.status, headers=self.headers())


class JSON(Response):
    media_type = "application/json"

    def render(self, content) -> bytes:
        return msgspec.json.encode(content) + b"\n"  # a terminal's prompt begins a line


def from_validation(error: RequestValidationError) -> APIError:
    """The first thing that is wrong with a body, in one sentence."""
    first = error.errors()[0]
    where, kind, value = [*first["loc"]], first["type"], first.get("input")
    if kind in ("json_invalid", "json_type"):
        reason = first.get("ctx", {}).get("error", first["msg"])
        return APIError(400, f"the body is no JSON: {reason}; send one JSON object")
    if where == ["body"] and kind != "unknown_field":
        return APIError(400, "the body is no JSON object; send one, with the fields of the API")
    name = field_name(where[1:] if where[0] in ("body", "path", "query") else where)
    message = first["msg"].removeprefix("Value error, ")
    if kind == "unknown_field":
        name = ".".join([*filter(None, [field_name(where[1:], "")]), first["ctx"]["name"]])
        message = f"field {name!r} is not known here; leave it out (GET /openapi.json lists all)"
    elif kind == "missing":
        message = f"field {name!r} is missing; it is needed"
    elif not re.match(rf"{re.escape(name)}\b", message):
        message = f"{name} is {shown(value)}: {message[:1].lower() + message[1:]}"
    return APIError(400, message, name)


def field_name(parts: list, otherwise: str = "body") -> str:
    """messages[0].content, from what pydantic calls the same; names of types are left out."""
    name = ""
    for part in parts:
        if isinstance(part, int):
            name += f"[{part}]"
        elif re.fullmatch(r"[a-z_0-9]+", str(part)) and part not in TYPE_NAMES:
            name += f".{part}" if name else str(part)
    return name or otherwise


TYPE_NAMES = {"str", "int", "float", "bool", "constrained-str", "list", "dict"}


BRIEFLY = reprlib.Repr()
BRIEFLY.maxlevel = 4


def shown(value) -> str:
    """Its beginning: a value may be 2 MB of nested lists."""
    text = repr(value[:60]) if isinstance(value, str) else BRIEFLY.repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def from_value_error(error: ValueError, fields) -> APIError:
    """A refusal that begins with the field's name, as those of labkit's own checks do."""
    message = str(error)
    begin = re.match(r"[a-z_]+", message)
    param = begin[0] if begin and begin[0] in fields else None
    return APIError(400, message, param)


UNREADABLE = (ValueError, RecursionError)  # raised for bytes that are no JSON, or nested too deep


async def on_api_error(request: Request, error: APIError) -> Response:
    return error.response()


async def on_validation_error(request: Request, error: RequestValidationError) -> Response:
    return from_validation(error).response()


async def on_http_error(request: Request, error: HTTPException) -> Response:
    """What the framework itself refuses: an unknown path, a method that isn't there."""
    message, param = str(error.detail), "body" if error.status_code in (408, 413) else None
    if error.status_code == 400 and error.__cause__ is not None:
        message = f"the body is no JSON: {unreadable(error.__cause__)}; send one JSON object"
    elif error.status_code == 404:
        message = f"there is no {request.url.path}; GET /openapi.json lists what there is"
    elif error.status_code == 405:
        message = f"{request.method} is not for {request.url.path}; see GET /openapi.json"
    response = APIError(error.status_code, message, param).response()
    response.headers.update(error.headers or {})
    return response


def unreadable(error: BaseException) -> str:
    """Why a body could not be read, beside mistakes of its grammar."""
    match error:
        case RecursionError():
            return "it is nested too deep"
        case UnicodeDecodeError():
            return f"byte {error.start} is not UTF-8"
        case ValueError():
            return "a number in it has too many digits"
    return "it can't be read"


async def on_any_error(request: Request, error: Exception) -> Response:
    return APIError(500, "the server failed on this request; its log says more").response()
