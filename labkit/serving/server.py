"""Runs a service until it is told to stop: the socket, the signals, the way out."""

import asyncio
import contextlib
import errno
import gc
import logging
import os
import signal
import socket
import sys
from argparse import Namespace

import uvicorn

from labkit.console import SetupError
from labkit.environment import again
from labkit.serving.api import create_app
from labkit.serving.engine_client import EngineDown, LoadFailed
from labkit.serving.guards import Guards
from labkit.serving.messages import Ready
from labkit.serving.protocol import Protocol
from labkit.serving.service import Service
from labkit.serving.text import TextSide

SEND_BUFFER = 64 * 1024  # bytes the system keeps for a client that doesn't read
MOST_FILES = 65_536
LAST_WORDS_S = 2.0  # for answers that are on their way when the server ends
GARBAGE = 50_000, 20, 100  # new objects until it is looked for; short looks until a longer one
log = logging.getLogger("labkit.server")


class WebServer(uvicorn.Server):
    """uvicorn without its own signal handlers: `run` has them."""

    def capture_signals(self):
        return contextlib.nullcontext()


def listen(host: str, port: int, command: str = "serve") -> socket.socket:
    """A socket that listens. Raises SetupError when it can't; `command` is what to try again."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    if sys.platform != "win32":  # there it would let two servers share a port
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    try:
        listening.bind((host, port))
        listening.listen(2048)
    except (OSError, OverflowError) as error:
        listening.close()
        reason, number = getattr(error, "strerror", None) or str(error), getattr(error, "errno", 0)
        remedy = f"--port {port + 1 if 1023 < port < 65535 else 8001}"
        if number == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
            remedy = "--host 127.0.0.1"
        told = "; another server may have it" if number == errno.EADDRINUSE else ""
        raise SetupError(
            f"{host}:{port} can't be opened", reason + told, again(f"{command} {remedy}")
        ) from None
    listening.setblocking(False)
    return listening


async def run(options: Namespace, text: TextSide, mine=None) -> int:
    """Serves one model until a signal, or until it turns out not to load; the exit status.

    `mine` is what `labkit.mine` has put into this process, with --mine.
    """
    return await serve(options, OneModel(options, text, mine))


class OneModel:
    """What `serve` has to know of what it serves: here a service, with its engine."""

    command = "serve"

    def __init__(self, options: Namespace, text: TextSide, mine=None):
        self.options, self.service = options, Service(options, text, mine)
        self.app, self.note_refusal = create_app(self.service), self.service.metrics.note_refusal

    def announce(self, port: int) -> None:
        """Says that it listens."""
        announce(self.options, self.service, port)

    async def run(self) -> None:
        """Keeps the engine alive until this is cancelled. LoadFailed if it can't be loaded."""
        await self.service.engine.run()

    async def drain(self, timeout: float) -> None:
        """Ends what is open."""
        await drain([self.service], timeout)

    def engine_pids(self) -> list[int]:
        return pids_of([self.service])


async def serve(options: Namespace, served) -> int:
    """Serves `served` (`OneModel`, say) until a signal, or until its `run` ends."""
    raise_file_limit()
    gc.collect()
    gc.freeze()  # what is there now stays
    gc.set_threshold(*GARBAGE)  # a body of a million lists is no garbage while it is read
    listening = listen(options.host, options.port, served.command)
    app = Guards(
        served.app, options.api_key, is_loopback(options.host), options.write_timeout,
        served.note_refusal,
    )  # fmt: skip
    config = uvicorn.Config(
        app, http=Protocol, ws="none", lifespan="off", log_config=None, access_log=False,
        timeout_keep_alive=75, server_header=False, proxy_headers=False,
    )  # fmt: skip
    web = WebServer(config)
    stopping = asyncio.Event()
    install_signals(served, stopping)
    engine = asyncio.create_task(served.run())
    serving = asyncio.create_task(web.serve(sockets=[listening]))
    stop = asyncio.create_task(stopping.wait())
    served.announce(listening.getsockname()[1])
    try:
        await asyncio.wait({engine, serving, stop}, return_when=asyncio.FIRST_COMPLETED)
        if engine.done():
            raise engine.exception() or LoadFailed("the engine ended")
        if serving.done():
            serving.result()
        await served.drain(options.drain_timeout)
        return 0
    except LoadFailed as error:
        raise SetupError(
            f"the model {options.model!r} can't be served", str(error), again("serve --help")
        ) from None
    finally:
        web.should_exit = True
        for task in (engine, stop):
            task.cancel()
        await asyncio.wait({engine, serving}, timeout=LAST_WORDS_S)
        web.force_exit = True
        await asyncio.wait({engine, serving}, timeout=LAST_WORDS_S)


async def drain(services: list[Service], timeout: float) -> None:
    """Refuses what comes, finishes what is open; ends what takes longer than `timeout`."""
    for service in services:
        service.draining = True
    num_open = sum(len(service.registry.tickets) for service in services)
    if num_open:
        print(f"Finishing what is open, up to {timeout:g} s; Ctrl-C ends it at once", flush=True)
    log.info("draining", extra={"open_requests": num_open})
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            while any(service.registry.tickets for service in services):
                await asyncio.sleep(0.02)
    for service in services:
        service.registry.end_all("the server is shutting down", "draining")
        over = EngineDown("the server is shutting down")
        service.engine.give_up(over)  # to those who aren't even in line yet
        service.closing = True


def pids_of(services: list[Service]) -> list[int]:
    """Of the engines that are processes of their own, in whatever state."""
    homes = [service.engine.home for service in services]
    return [home.pid for home in homes if home is not None and home.pid not in (None, os.getpid())]


def install_signals(served, stopping: asyncio.Event) -> None:
    """The first SIGTERM or Ctrl-C drains, a second Ctrl-C ends at once."""

    def stop(number: int) -> None:
        if stopping.is_set() and number == signal.SIGINT:
            for pid in served.engine_pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
            os._exit(130)
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, stop, number)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda n, _: loop.call_soon_threadsafe(stop, n))


def raise_file_limit() -> None:
    """Each connection is an open file, and many systems begin with 1,024 of them."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS knows a limit that it doesn't tell
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def address_of(options: Namespace, port: int) -> str:
    host = f"[{options.host}]" if ":" in options.host else options.host
    return f"http://{host}:{port}"


def warn_if_open(options: Namespace) -> None:
    if not is_loopback(options.host) and not options.api_key:
        print("      Whoever can reach this machine can use it: think of --api-key.", flush=True)


def announce(options: Namespace, service: Service, port: int) -> None:
    """Where it is, at once; that it is ready, when it is."""
    address = address_of(options, port)
    wait = "wait for Ready; the first time on a machine takes a minute"
    print(f"Open: {address}    (loading {options.model}: {wait})", flush=True)
    warn_if_open(options)

    def first_ready(info: Ready) -> None:
        print(banner(info, service, address), flush=True)

    service.on_first_ready = first_ready


def banner(info: Ready, service: Service, address: str) -> str:
    """What serves where: model, rung, cache, and whose parts are in it."""
    lines = [
        f"Ready: {address}  {service.model} on {info.device} in {info.dtype}, "
        f"loaded in {info.seconds:.1f} s",
        f"       rung {info.rung}, policy {info.policy}, up to {info.max_num_seqs} at once, "
        f"{info.max_model_len:,} tokens each",
    ]
    if info.num_blocks:
        lines.append(f"       KV cache of {info.num_blocks:,} blocks of {info.block_size} tokens")
    if service.options.mine:
        lines.append(f"       with your own parts: {', '.join(service.mine) or 'none on its path'}")
    lines += [f"       not in use: {problem}" for problem in info.problems]
    return "\n".join(lines)
