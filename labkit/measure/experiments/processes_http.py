"""Real servers of a notebook, asked over HTTP: started together, ended whatever becomes of it."""

import asyncio
import http.client
import json
import tempfile
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from labkit.measure.bench import served
from labkit.measure.bench.served import Served

MODULE = "labkit.measure.experiments.processes_server"
PATIENCE_S = 60.0
LAST_S = 5.0  # until killed processes are gone


@contextmanager
def servers(asked: Mapping[str, tuple[str, Sequence[str]]]) -> Iterator[dict[str, Served]]:
    """Servers by name, all ready, for as long as the block lasts; `asked` has for each where its
    engine lives (a key of `served.HOMES`) and its options. They load at the same time.

    Left by an exception or Ctrl-C, the block ends them too; should this process be killed, they
    end by themselves (`processes_server`). Raises BenchError when one doesn't start.
    """
    running: dict[str, Served] = {}
    with tempfile.TemporaryDirectory(prefix="labkit-") as folder, served.ended_by_sigterm():
        try:
            for name, (home, options) in asked.items():
                place = Path(folder) / name
                place.mkdir()
                running[name] = Served(MODULE, options, home, place)
            for one in running.values():
                one.wait_until_ready()
            yield running
        finally:
            end(running.values())


def end(running) -> None:
    """Kills servers and their engines, and waits until they are gone."""
    family = []
    for one in running:
        with suppress(psutil.Error):
            family += psutil.Process(one.pid).children(recursive=True)
        one.process.kill()
    for one in running:
        one.process.wait()
    for process in family:
        with suppress(psutil.Error):
            process.kill()
    last = time.monotonic() + LAST_S
    while any(map(is_alive, family)) and time.monotonic() < last:
        time.sleep(0.01)


def is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def run_beside(work: Coroutine):
    """The result of a coroutine, run in a thread: a notebook has a loop of its own in this one."""
    found: list = []

    def run() -> None:
        try:
            found.append((asyncio.run(work), None))
        except BaseException as error:
            found.append((None, error))

    thread = threading.Thread(target=run, daemon=True)  # an interrupt leaves it: servers end first
    thread.start()
    thread.join()
    result, error = found[0]
    if error is not None:
        raise error
    return result


class Stream:
    """A streamed answer of /v1/completions, read as far as one wants. `id` is the server's."""

    def __init__(self, server: Served, prompt, max_tokens: int, **fields):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
        body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "stream": True}
        content = json.dumps(body | {"ignore_eos": True} | fields)
        self.connection.request(
            "POST", "/v1/completions", content, {"content-type": "application/json"}
        )
        self.response = self.connection.getresponse()
        self.status, self.id = self.response.status, self.response.getheader("x-request-id")
        self.text, self.error, self.is_done = "", None, False

    def events(self) -> Iterator[dict]:
        """What comes, up to "[DONE]" or an error, which is in `error` then."""
        for line in self.response:
            if line.startswith(b"data: [DONE]"):
                self.is_done = True
            elif line.startswith(b"data: "):
                event = json.loads(line.removeprefix(b"data: "))
                self.error = event.get("error")
                if self.error:
                    continue
                self.text += "".join(choice["text"] for choice in event["choices"])
                yield event

    def take(self, count: int) -> "Stream":
        """Reads so many events."""
        for number, _ in enumerate(self.events(), 1):
            if number >= count:
                break
        return self

    def rest(self) -> "Stream":
        """Reads to the end."""
        for _ in self.events():
            pass
        return self

    def leave(self) -> None:
        """The client hangs up, in the middle of its answer."""
        self.connection.close()
        self.response.close()


def get(server: Served, path: str) -> tuple[int, dict]:
    """The status and the JSON of a page."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()
