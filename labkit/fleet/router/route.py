"""`python3 -m labkit route …`, inside `.venv`: the router until it is told to stop."""

import sys
from argparse import Namespace
from dataclasses import replace

from labkit.console import SetupError, make_safe
from labkit.fleet.breaker import Breaker
from labkit.fleet.pools import Pools, Spill
from labkit.fleet.router import options as route_options
from labkit.fleet.router.app import RouterApp, client_session
from labkit.fleet.router.backends import Backend, Dispatcher, Timeouts
from labkit.fleet.router.health_checks import HealthChecks
from labkit.fleet.router.options import PREFIX_BLOCKS
from labkit.fleet.routing import ROUTERS, PrefixAware, Replica, Router, Session
from labkit.serving import logs, server
from labkit.serving.__main__ import run as run_loop

LONGEST_COOLDOWN = 30  # times the first
LEAST_BLOCKS = 4  # 512 bytes: more than a body begins with anyway


def main(argv: list[str]) -> int:
    """Routes until it is told to stop; returns the exit status."""
    make_safe()
    options = route_options.parse(argv)
    logs.set_up(options.log_format)
    try:
        return run_loop(run(options))
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


async def run(options: Namespace) -> int:
    """Serves until a signal; then finishes what is open. Returns the exit status."""
    async with client_session() as session:
        return await server.serve(options, Routed(options, session))


class Routed:
    """What `server.serve` has to know of what it serves: here a router, which has no engine."""

    command = "route ..."

    def __init__(self, options: Namespace, session):
        self.options, self.backends = options, backends_of(options)
        dispatcher = Dispatcher(self.backends, policy_of(options))
        self.app = RouterApp(dispatcher, session, options.retries, options.session_header)
        self.checks = HealthChecks(
            self.backends, session, options.health_interval, options.health_timeout,
            options.api_key,
        )  # fmt: skip
        self.note_refusal = self.app.note_refusal

    def announce(self, port: int) -> None:
        """Says that it listens."""
        options = self.options
        policy = "two pools" if options.dedicated else options.policy or "least-loaded"
        print(f"Open: {server.address_of(options, port)}    (policy: {policy})", flush=True)
        server.warn_if_open(options)

    async def run(self) -> None:
        """Looks after the replicas until this is cancelled."""
        await self.checks.check_all()
        for one in self.backends:
            pool = f" ({one.replica.pool})" if self.options.dedicated else ""
            state = "up" if one.is_up else f"down, {one.detail}"
            print(f"Replica {one.name}{pool} at {one.url}: {state}", flush=True)
        await self.checks.run()

    async def drain(self, timeout: float) -> None:
        """Ends what is open."""
        if self.app.num_open:
            told = f"Finishing {self.app.num_open} requests, up to {timeout:g} s"
            print(f"{told}; Ctrl-C ends them at once", flush=True)
        await self.app.drain(timeout)

    def engine_pids(self) -> list[int]:
        return []


def backends_of(options: Namespace) -> list[Backend]:
    shortest = options.breaker_cooldown
    timeouts = Timeouts(
        options.connect_timeout, options.first_byte_timeout, options.between_bytes_timeout,
        options.whole_answer_timeout,
    )  # fmt: skip
    return [
        Backend(
            one.url, Replica(one.name, pool=one.pool),
            Breaker(options.breaker_failures, shortest, LONGEST_COOLDOWN * shortest),
            replace(timeouts, **one.timeouts),
        )
        for one in options.targets
    ]  # fmt: skip


def policy_of(options: Namespace) -> Router:
    if options.dedicated:
        given = {"urgent_above": options.urgent_above, "lend_below": options.lend_below}
        spill = Spill(**{name: value for name, value in given.items() if value is not None})
        return Pools(options.seed, spill)
    kind = ROUTERS[options.policy or "least-loaded"]
    if kind is Session:
        return Session(options.seed, key=lambda asked: asked.session)
    if kind is PrefixAware:
        most = options.prefix_blocks or PREFIX_BLOCKS
        return PrefixAware(options.seed, most_blocks=most, least_blocks=LEAST_BLOCKS)
    return kind(options.seed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
