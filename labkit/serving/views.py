"""What can be seen of a server: its health, its requests from socket to block, the page's state."""

import asyncio
import time
from contextlib import suppress

from labkit.serving.answers import event
from labkit.serving.engine_client import EngineDown
from labkit.serving.lifecycle import Ticket
from labkit.serving.messages import Sight

LOOK_S = 1.0  # so long a view waits for the engine, which answers between two steps
MOST_SHOWN = 200  # requests on the page
NOTHING = Sight(0, [], 0, 0)
FRESH_S = 0.2  # all who watch within it see the same


class Views:
    """Read-only over a `Service`. However many watch, the engine is asked once at a time."""

    def __init__(self, service):
        self.service, self.registry = service, service.registry
        self.sight = NOTHING  # what the engine said last
        self.looking: asyncio.Task | None = None
        self.shown, self.shown_at = b"", 0.0

    @property
    def engine(self):
        return self.service.engine  # of a model that leaves and comes again there are several

    def card(self) -> dict:
        """The model as /v1/models tells it."""
        service, info = self.service, self.engine.info
        known = {"id": service.model, "object": "model", "created": service.created}
        return known | {"owned_by": "labkit", "max_model_len": info and info.max_model_len}

    def health(self) -> dict:
        service = self.service
        return {
            "status": service.status,
            "detail": "finishing what is open" if service.draining else self.engine.detail,
            "model": service.model,
            "engine_pid": service.engine_pid,
            "engine_restarts": self.engine.num_restarts,
            "open_requests": len(self.registry.tickets),
        }

    async def look(self) -> Sight:
        """What the engine holds; what it said last, if it doesn't answer soon."""
        if self.looking is None or self.looking.done():
            self.looking = asyncio.create_task(self.ask())
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await asyncio.shield(self.looking)
        return self.sight

    async def ask(self) -> None:
        with suppress(EngineDown):
            self.sight = await self.engine.look()
            self.registry.note(self.sight)
            self.service.metrics.seen(self.sight, self.engine.info.num_blocks)

    def request(self, ticket: Ticket) -> dict:
        """One request as /v1/requests tells it; of one that ended, as it was then."""
        now, asked = ticket.ended or time.monotonic(), ticket.asked
        starts = [choice.started for choice in ticket.choices if choice.started]
        deadline = ticket.deadline
        return {
            "id": ticket.id,
            "label": asked.label or None,
            "endpoint": asked.endpoint,
            "model": self.service.model,
            "tenant": asked.tenant or None,
            "priority": asked.priority,
            "deadline_s": None if deadline is None else round(deadline - now, 3),
            "state": ticket.state,
            "finish_reason": None if ticket.is_open else ticket.finish_reasons,
            "streaming": asked.stream,
            "client": ticket.client,
            "age_s": round(now - ticket.arrival, 3),
            "queue_s": round((min(starts) if starts else now) - ticket.arrival, 4),
            "ttft_s": None if ticket.ttft is None else round(ticket.ttft, 4),
            "prompt_tokens": ticket.num_prompt_tokens,
            "cached_tokens": ticket.num_cached_tokens,
            "output_tokens": ticket.num_tokens,
            "blocks": len(ticket.block_ids),
            "host_blocks": sum(held.num_host_blocks for held in ticket.held),
            "preemptions": ticket.num_preemptions,
            "unsent_tokens": len(ticket.pieces),
            "dropped": ticket.dropped,
        }

    async def live_event(self) -> bytes:
        """The page's state as a server-sent event."""
        if time.monotonic() > self.shown_at + FRESH_S:
            await self.look()
            self.shown, self.shown_at = event(self.live_state()), time.monotonic()
        return self.shown

    def live_state(self) -> dict:
        """The whole server at this moment, for the page."""
        service, info, sight, now = self.service, self.engine.info, self.sight, time.monotonic()
        open_ones = [*self.registry.tickets.values()]
        states = [ticket.state for ticket in open_ones]
        about = {name: getattr(info, name) for name in ABOUT} if info else {}
        return {
            "time": round(now, 3),
            "status": service.status,
            "detail": self.engine.detail,
            "model": service.model,
            "mine": service.mine,
            **about,
            "running": states.count("running"),
            "waiting": states.count("waiting") + states.count("preempted"),
            "kv_usage": sight.num_used_blocks / info.num_blocks if info and info.num_blocks else 0,
            "cached_blocks": sight.num_cached_blocks,
            **service.live.summary(now),
            "requests": [
                {**self.request(ticket), "block_ids": ticket.block_ids}
                for ticket in open_ones[:MOST_SHOWN]
            ],
        }


ABOUT = (
    "rung", "policy", "dtype", "device", "num_blocks", "block_size", "max_num_seqs",
    "max_model_len",
)  # fmt: skip
