"""The server behind its routes: what comes in becomes a ticket; tickets become views."""

import asyncio
import logging
import math
import secrets
import time
from argparse import Namespace
from contextlib import suppress
from dataclasses import replace

from labkit.model.sampling_params import SamplingParams
from labkit.serving.admission import fitted, refuse_what_it_lacks
from labkit.serving.engine_client import EngineClient, EngineDown, EngineLost, RequestRefused
from labkit.serving.errors import APIError, from_value_error
from labkit.serving.lifecycle import Asked, Choice, Registry, Ticket, failed
from labkit.serving.live import Live
from labkit.serving.logs import log_request
from labkit.serving.messages import Add, Ready, Step
from labkit.serving.metrics import Metrics
from labkit.serving.options import engine_config
from labkit.serving.text import TextSide
from labkit.serving.views import NOTHING, Views

RETRY_AFTER_S = 1
FIRST_LOAD_S = 10  # so long a client is asked to wait while the server starts
PREFIX = {"chat": "chatcmpl", "completions": "cmpl"}
FIELDS = {*SamplingParams.__dataclass_fields__, "priority", "prompt"}
log = logging.getLogger("labkit.server")


class Service:
    """Everything of one server: text side, engine, registry, metrics.

    Near its end it is `draining`: nothing new is taken. Then `closing`: nothing goes on.
    """

    def __init__(self, options: Namespace, text: TextSide, mine=None):
        self.options, self.text, self.mine_here = options, text, mine
        self.model = options.served_model_name
        self.names = {self.model}  # by which clients may call it
        self.metrics, self.live = Metrics(self.model), Live()
        self.registry = Registry(self, options.max_unsent_tokens)
        self.engine = self.make_engine()
        self.on_first_ready = lambda info: None
        self.mine: list[str] = []  # exercises of which a learner's own parts are at work
        self.draining = self.closing = False
        self.views = Views(self)
        self.created = int(time.time())

    def make_engine(self) -> EngineClient:
        """An engine that isn't started."""
        engine = EngineClient(
            engine_config(self.options),
            self.options.home,
            on_step=self.registry.on_step,
            on_death=self.on_death,
            has_open=lambda: bool(self.registry.tickets),
            step_timeout=self.options.step_timeout,
        )
        engine.on_ready, engine.on_restart = self.on_ready, self.metrics.restarts.inc
        return engine

    @property
    def status(self) -> str:
        return "draining" if self.draining else self.engine.status

    @property
    def engine_pid(self) -> int | None:
        home = self.engine.home
        return home.pid if home is not None and self.engine.status == "ready" else None

    # ---- requests

    async def submit(self, asked: Asked, client: str, arrival: float) -> Ticket:
        """Puts what a client asks for in line. Raises APIError, and then nothing is in line."""
        self.refuse_when_closed()
        info = self.engine.info
        refuse_what_it_lacks(asked, info)
        params = replace(asked.params, max_tokens=fitted(asked, info.max_model_len))
        asked = replace(asked, params=params)
        self.refuse_when_full(len(asked.prompts), params.n)
        name = f"{PREFIX[asked.endpoint]}-{secrets.token_hex(12)}"
        ticket = Ticket(name, asked, self.text, self.engine.abort_soon, client, arrival)
        self.registry.open(ticket)
        try:
            home = self.engine.home
            await asyncio.gather(*map(self.engine.add, self.adds(ticket)))
            if self.engine.status != "ready" or self.engine.home is not home:
                raise EngineLost(self.engine.detail)  # it accepted, and died before this went on
            ticket.is_accepted = True
        except BaseException as error:
            self.registry.withdraw(ticket)
            raise self.as_api_error(error) from None
        if not self.options.log_prompts:
            ticket.asked = replace(asked, prompts=[])  # the engine has them
        return ticket

    def adds(self, ticket: Ticket) -> list[Add]:
        """What the engine is told of a ticket, one message a prompt."""
        asked = ticket.asked
        return [
            Add(
                ticket.request_id(index), prompt, asked.params, ticket.arrival, asked.priority,
                asked.tenant, ticket.deadline, asked.cache_salt,
            )
            for index, prompt in enumerate(asked.prompts)
        ]  # fmt: skip

    def refuse_when_closed(self) -> None:
        if self.draining:
            raise self.over()
        if self.engine.status != "ready":
            raise self.down(self.engine.detail)

    def refuse_when_full(self, num_prompts: int, n: int) -> None:
        """The engine knows best who would wait; this holds also while it is in a long step."""
        count = num_prompts * n
        most = self.options.max_queued_requests + self.engine.info.max_num_seqs
        if count > most:
            told = f"{count} answers (prompts x n) are asked for, {most} is the most; send less"
            raise APIError(400, told, "n" if n > 1 else "prompt")
        if len(self.registry.choices) + count > most:
            raise self.busy(f"{len(self.registry.choices)} requests are open, {most} may be")

    def over(self) -> APIError:
        return APIError(503, "the server is shutting down", code="draining", retry_after=5)

    def busy(self, reason: str) -> APIError:
        return APIError(429, reason, code="too_many_requests", retry_after=RETRY_AFTER_S)

    def down(self, reason: str) -> APIError:
        told = f"the engine is not ready: {reason}"
        loading = math.ceil(self.engine.info.seconds) if self.engine.info else FIRST_LOAD_S
        return APIError(503, told, code="engine_down", retry_after=loading)

    def as_api_error(self, error: BaseException) -> BaseException:
        match error:
            case RequestRefused(busy=True):
                return self.busy(str(error))
            case RequestRefused() if "deadline" in str(error):
                return APIError(400, str(error), "deadline_ms", "deadline_unattainable")
            case RequestRefused():
                return from_value_error(error, FIELDS)
            case EngineDown() if self.draining:
                return self.over()
            case EngineLost():
                told = f"{error}; try again"
                return APIError(503, told, code="engine_failed", retry_after=RETRY_AFTER_S)
            case EngineDown():
                return self.down(str(error))
        return error

    async def cancel(self, ticket: Ticket) -> bool:
        """Ends a ticket; whether anything was cancelled, as the engine says."""
        if not ticket.is_open:
            return False
        names = [choice.request_id for choice in ticket.choices if choice.is_open]
        cancelled = []
        with suppress(EngineDown):
            cancelled = await self.engine.abort(names)
        self.registry.end(ticket, "abort", "the request was cancelled", "cancelled")
        return bool(cancelled)

    def on_ready(self, info: Ready) -> None:
        if self.mine_here is not None:
            from labkit.mine import on_path

            on_it = on_path(info.rung, self.options.policy or "priority")
            self.mine = sorted({*self.mine_here.loaded, *info.mine} & on_it)
        if self.engine.num_restarts == 0:
            self.on_first_ready(info)

    def on_death(self, reason: str) -> None:
        self.views.sight = NOTHING
        self.metrics.seen(NOTHING)
        self.registry.end_all(f"{reason}; another one is being started, try again", "engine_failed")

    # ---- what the registry tells

    def started(self, choice: Choice) -> None:
        self.metrics.started(choice)

    def preempted(self, choice: Choice) -> None:
        self.metrics.preempted(choice)
        self.live.preemptions += 1

    def token(self, choice: Choice, now: float) -> None:
        self.metrics.token(choice, now)
        first = choice.first_token is None
        self.live.token(
            now,
            now - choice.ticket.arrival if first else None,
            None if first else now - choice.last_token,
        )

    def ended(self, choice: Choice, now: float) -> None:
        self.metrics.ended(choice, now)
        self.live.finished += not failed(choice)
        self.live.failed += failed(choice)

    def closed(self, ticket: Ticket) -> None:
        self.metrics.closed(ticket)
        if self.options.log_prompts:
            prompts = [self.text.decode(p, skip_special_tokens=False) for p in ticket.asked.prompts]
            log_request(ticket, prompts, [choice.output.text for choice in ticket.choices])
            ticket.asked = replace(ticket.asked, prompts=[])  # logged, and of no more use
        else:
            log_request(ticket)

    def stepped(self, step: Step) -> None:
        num_tokens = sum(token.token_id is not None for token in step.tokens)
        self.live.step(time.monotonic(), step.ended - step.began, num_tokens)
        # `heard` is of this step: the client notes it before it hands a message on.
        self.metrics.stepped(step, self.engine.info.num_blocks, self.engine.heard)
