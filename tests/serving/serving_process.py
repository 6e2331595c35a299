"""A server process, and a client that is as patient as a slow machine needs."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable

import httpx
import psutil

from labkit import paths

PATIENCE_S = 120  # how long a slow machine may take; no test is about time
FINE = ("stop", "length")


def until(found: Callable, what: str, patience: float = PATIENCE_S):
    """Asks until the answer is true, and returns it."""
    last = time.monotonic() + patience
    while not (answer := found()):
        assert time.monotonic() < last, f"not within {patience} s: {what}"
        time.sleep(0.02)
    return answer


class Server:
    """`python -m labkit.serving` on a free port; what it prints is kept in `folder`."""

    module, defaults = "labkit.serving", ("--model", "tiny")

    def __init__(self, folder, options=(), variables=None):
        folder.mkdir(exist_ok=True)
        self.out, self.err = folder / "out.txt", folder / "err.txt"
        options = [*map(str, options)]
        if self.defaults and self.defaults[0] not in options:
            options = [*self.defaults, *options]
        if "--port" not in options:
            options += ["--port", "0"]
        environment = {**os.environ, **(variables or {})}
        if "LABKIT_API_KEY" not in (variables or {}):
            environment.pop("LABKIT_API_KEY", None)
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module, *options], cwd=paths.repo_root(),
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment,
            )  # fmt: skip
        self.pid, self.children = self.process.pid, set()
        self.http = httpx.Client(
            timeout=PATIENCE_S, trust_env=False, limits=httpx.Limits(max_connections=None)
        )

    # ---- its life

    @property
    def url(self) -> str:
        if not self.http.base_url.host:
            self.http.base_url = until(self.printed_address, f"an address\n{self.said()}")
        return str(self.http.base_url).rstrip("/")

    def printed_address(self) -> str | None:
        found = re.search(r"Open: (http://\S+)", self.out.read_text(encoding="utf-8"))
        assert found or self.process.poll() is None, f"it ended:\n{self.said()}"
        return found and found[1]

    def said(self) -> str:
        return self.out.read_text(encoding="utf-8") + self.err.read_text(encoding="utf-8")

    def wait_until_ready(self) -> None:
        assert self.url
        until(self.is_ready, f"ready\n{self.said()}")
        self.note_children()

    def is_ready(self) -> bool:
        assert self.process.poll() is None, f"it ended:\n{self.said()}"
        return self.http.get("/health").status_code == 200

    def health(self) -> dict:
        return self.http.get("/health").json()

    def engine_pid(self) -> int:
        return self.health()["engine_pid"]

    def note_children(self) -> list[psutil.Process]:
        """Remembers the processes that it has started, to see at the end that none is left."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.children |= {*psutil.Process(self.pid).children(recursive=True)}
        return [*self.children]

    def exit_status(self) -> int:
        return self.process.wait(PATIENCE_S)

    def stop(self) -> None:
        self.http.close()
        self.note_children()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE_S)

    def assert_nothing_is_left(self) -> None:
        def left():
            return [child for child in self.children if is_alive(child)]

        until(lambda: not left(), f"the end of {left()}", 30)

    # ---- asking

    def post(self, path: str, body, **headers) -> httpx.Response:
        return self.http.post(path, json=body, headers=headers)

    def complete(self, prompt="hello", **body) -> dict:
        """The answer of /v1/completions: greedy, 8 tokens, if not told otherwise."""
        response = self.post("/v1/completions", completion(prompt, **body))
        assert response.status_code == 200, response.text
        return response.json()

    def text(self, prompt="hello", **body) -> str:
        return self.complete(prompt, **body)["choices"][0]["text"]

    def chat(self, content="hello", **body) -> dict:
        asked = {"messages": [{"role": "user", "content": content}], "temperature": 0} | body
        response = self.post("/v1/chat/completions", {"max_tokens": 8} | asked)
        assert response.status_code == 200, response.text
        return response.json()

    def stream(self, prompt="hello", **body) -> "Stream":
        return Stream(self, "/v1/completions", completion(prompt, **body) | {"stream": True})

    def requests(self) -> list[dict]:
        return self.http.get("/v1/requests").json()["data"]

    def request(self, request_id: str) -> dict:
        return self.http.get(f"/v1/requests/{request_id}").json()

    def delete(self, request_id: str) -> dict:
        return self.http.delete(f"/v1/requests/{request_id}").json()

    def cancel_all(self) -> None:
        """Ends what a test has left open."""
        for one in self.requests():
            self.delete(one["id"])

    def state(self) -> dict:
        """One state of /live."""
        with self.http.stream("GET", "/live") as response:
            line = next(line for line in response.iter_lines() if line.startswith("data: "))
        return json.loads(line.removeprefix("data: "))

    def wait_until_idle(self) -> None:
        """Waits until nobody is served and no block is held."""
        until(lambda: not self.requests() and self.state()["kv_usage"] == 0, "idle")

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric over all labels that aren't told."""
        total = 0.0
        for line in self.http.get("/metrics").text.splitlines():
            if re.match(rf"{re.escape(name)}[ {{]", line) and all(
                f'{key}="{value}"' in line for key, value in labels.items()
            ):
                total += float(line.rsplit(" ", 1)[1])
        return total


def is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def completion(prompt, **body) -> dict:
    asked = {"prompt": prompt, "temperature": 0, "max_tokens": 8} | body
    return {name: value for name, value in asked.items() if value is not None}


class Stream:
    """A streamed answer, read as far as a test wants. `error` and `is_done` are how it ended."""

    def __init__(self, server: Server, path: str, body: dict):
        request = server.http.build_request("POST", path, json=body)
        self.response = server.http.send(request, stream=True)
        assert self.response.status_code == 200, self.response.read()
        self.id = self.response.headers["x-request-id"]
        self.lines = self.response.iter_lines()
        self.is_done, self.error = False, None
        self.chunks: list[dict] = []

    def __iter__(self):
        for line in self.lines:
            if line == "data: [DONE]":
                self.is_done = True
            elif line.startswith("data: "):
                assert not self.is_done and not self.error, f"after the end: {line}"
                chunk = json.loads(line.removeprefix("data: "))
                self.error = chunk.get("error")
                if not self.error:
                    self.chunks.append(chunk)
                    yield chunk
        assert self.is_done != bool(self.error), "neither [DONE] nor an error, or both"

    def take(self, count: int) -> "Stream":
        """Reads so many chunks."""
        for number, _ in enumerate(self, 1):
            if number == count:
                return self
        raise AssertionError(f"it ended after {len(self.chunks)} chunks: {self.error}")

    def rest(self) -> "Stream":
        """Reads to the end."""
        for _ in self:
            pass
        return self

    def text(self, index: int = 0) -> str:
        """What has come of one answer."""
        choices = [choice for chunk in self.chunks for choice in chunk["choices"]]
        return "".join(
            c.get("text", "") + (c.get("delta") or {}).get("content", "")
            for c in choices
            if c["index"] == index
        )

    def reasons(self) -> dict[int, str]:
        """Why each answer ended: told once for each."""
        told = [c for chunk in self.chunks for c in chunk["choices"] if c["finish_reason"]]
        assert len({c["index"] for c in told}) == len(told)
        return {c["index"]: c["finish_reason"] for c in told}

    def leave(self) -> None:
        self.response.close()
