"""What several replicas tell, as one answer: models, requests; and the router's own health."""

import asyncio
from collections.abc import Callable
from urllib.parse import quote

import aiohttp
import msgspec

from labkit.fleet.router import headers
from labkit.fleet.router.backends import Backend, Dispatcher
from labkit.fleet.router.replies import MOST_LISTED, short_body
from labkit.serving.errors import JSON, UNREADABLE, APIError

PATIENCE_S = 2.0  # for a replica's part of a list
SPARE_DEPTH = 100  # calls


class Merged:
    """Views over all backends. A replica that is down, or doesn't answer, is in `missing`."""

    def __init__(self, dispatcher: Dispatcher, session: aiohttp.ClientSession, owner_of: Callable):
        self.dispatcher, self.backends = dispatcher, dispatcher.backends
        self.session, self.owner_of = session, owner_of

    async def models(self, scope) -> JSON:
        """Each model once, with the replicas that have it."""
        lists, missing = await self.ask_all(scope, "/v1/models")
        found: dict[str, dict] = {}
        for backend, told in lists:
            for one in told["data"]:
                replicas = found.setdefault(one["id"], {**one, "replicas": []})["replicas"]
                replicas.append(backend.name)
        return JSON({"object": "list", "data": [*found.values()], "missing": missing})

    async def model(self, scope, name: str) -> JSON:
        listed = msgspec.json.decode((await self.models(scope)).body)["data"]
        for one in listed:
            if one["id"] == name:
                return JSON(one)
        told = f"no replica has the model {name!r}; GET /v1/models lists what there is"
        raise APIError(404, told, "model", "model_not_found")

    async def requests(self, scope) -> JSON:
        """All open requests, each with its replica. Servers without such a list are `missing`."""
        lists, missing = await self.ask_all(scope, "/v1/requests")
        data = [
            {**one, "replica": backend.name} for backend, told in lists for one in told["data"]
        ]
        mine = sorted({exercise for _, told in lists for exercise in told.get("mine", ())})
        return JSON({"object": "list", "mine": mine, "data": data, "missing": missing})

    async def request(self, scope, request_id: str) -> JSON:
        """One request, looked at or cancelled where it is. 404 when no replica knows it."""
        owner = self.owner_of(request_id)
        path = f"/v1/requests/{quote(request_id, safe='')}"
        asked = [owner] if owner else self.backends
        answers = await asyncio.gather(*(self.ask(one, scope, path) for one in asked))
        known = [(one, told) for one, told in zip(asked, answers, strict=True) if told]
        for backend, (status, told) in known:
            if status != 404:
                told = {**told, "replica": backend.name} if "error" not in told else told
                return JSON(told, status, headers={headers.REPLICA.decode(): backend.name})
        if len(known) < len(asked):
            silent = [one.name for one, told in zip(asked, answers, strict=True) if not told]
            told = f"request {request_id!r} may be at {', '.join(silent)}, which doesn't answer"
            raise APIError(503, f"{told}; try again", code="replica_lost", retry_after=1)
        told = f"there is no request {request_id!r}; GET /v1/requests lists those that are open"
        raise APIError(404, told, "request_id")

    async def ask_all(self, scope, path: str) -> tuple[list[tuple[Backend, dict]], list[str]]:
        """The lists of those that have one, and the names of the others."""
        answers = await asyncio.gather(*(self.ask(one, scope, path) for one in self.backends))
        both = [*zip(self.backends, answers, strict=True)]
        if any(told and told[0] == 401 for _, told in both):
            told = "a replica wants another key; send 'Authorization: Bearer KEY' with its key"
            raise APIError(401, told, code="invalid_api_key")
        is_fine = is_models if path == "/v1/models" else is_requests
        lists = [(one, told[1]) for one, told in both if told and told[0] == 200]
        lists = [(one, told) for one, told in lists if is_fine(told)]
        having = [one for one, _ in lists]
        return lists, [one.name for one in self.backends if one not in having]

    async def ask(self, backend: Backend, scope, path: str) -> tuple[int, dict] | None:
        """Status and JSON object of one replica, asked with the client's key; None without."""
        if not backend.is_up:
            return None
        limit = aiohttp.ClientTimeout(total=PATIENCE_S)
        key = dict(scope["headers"]).get(b"authorization")
        kept = {"authorization": key.decode("latin-1")} if key else {}
        try:
            async with self.session.request(
                scope["method"], backend.url + path, timeout=limit, headers=kept,
                allow_redirects=False,
            ) as response:  # fmt: skip
                body = await short_body(response, MOST_LISTED)
                told = msgspec.json.decode(body or b"")
                check_depth(told)
                is_one = isinstance(told, dict) and 200 <= response.status <= 599
                return (response.status, told) if is_one else None
        except (TimeoutError, aiohttp.ClientError, OSError, *UNREADABLE):
            return None

    def health(self, draining: bool, num_open: int) -> JSON:
        """200 while a replica can be asked."""
        now = self.dispatcher.clock()
        replicas = [
            {
                "name": one.name, "url": one.url, "pool": one.replica.pool, "up": one.is_up,
                "detail": one.detail, "breaker": one.breaker.state(now),
                "models": None if one.models is None else sorted(one.models),
                "requests": one.replica.num_requests, "tokens": one.replica.num_tokens,
            }
            for one in self.backends
        ]  # fmt: skip
        is_fine = any(one["up"] and one["breaker"] != "open" for one in replicas)
        status = "draining" if draining else "ready" if is_fine else "no_replica"
        told = {"status": status, "open_requests": num_open, "replicas": replicas}
        return JSON(told, 200 if status == "ready" else 503)


def check_depth(told) -> None:
    """Raises RecursionError unless `told` can be written again later, where the stack is deeper."""
    for _ in range(SPARE_DEPTH):
        told = [told]
    msgspec.json.encode(told)


def is_models(told: dict) -> bool:
    """Whether it is a list of objects, each with a name."""
    return has_objects(told) and all(isinstance(one.get("id"), str) for one in told["data"])


def is_requests(told: dict) -> bool:
    """Whether it is a list of objects; `mine` is labkit's own."""
    mine = told.get("mine", [])
    return has_objects(told) and isinstance(mine, list) and all(isinstance(e, str) for e in mine)


def has_objects(told: dict) -> bool:
    data = told.get("data")
    return isinstance(data, list) and all(isinstance(one, dict) for one in data)
