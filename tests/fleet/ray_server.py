"""`serve --replicas` as a process of its own, and a client that is patient."""

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time

import httpx
import psutil

from labkit import paths

PATIENCE_S = 180  # how long a slow machine may take; no test is about time


def until(found, what: str):
    """Asks until the answer is true, and returns it."""
    last = time.monotonic() + PATIENCE_S
    while not (answer := found()):
        assert time.monotonic() < last, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.05)
    return answer


class RayServer:
    """Starts one on a free port, in `folder`; `wait` for it with `wait_until_ready`."""

    def __init__(self, folder, *options):
        folder.mkdir(exist_ok=True)
        self.said_in = folder / "said.txt"
        with self.said_in.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "labkit.fleet.ray_serve.local", "--port", "0",
                 *map(str, options)],
                cwd=paths.repo_root(), stdin=subprocess.DEVNULL, stdout=said,
                stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        self.family: set[psutil.Process] = set()
        self.http = httpx.Client(timeout=PATIENCE_S, trust_env=False)

    def said(self) -> str:
        return self.said_in.read_text(encoding="utf-8", errors="replace")

    def wait_until_ready(self) -> None:
        def address():
            self.note_family()
            assert self.process.poll() is None, f"it ended:\n{self.said()}"
            return re.search(r"Ready: (http://\S+)", self.said())

        self.http.base_url = until(address, "ready")[1]

    def note_family(self) -> set[psutil.Process]:
        """Remembers its processes, to see at the end that none is left."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.family |= {*psutil.Process(self.process.pid).children(recursive=True)}
        return self.family

    def alive(self) -> list[psutil.Process]:
        return [one for one in self.family if is_alive(one)]

    def replicas(self) -> dict[str, dict]:
        """The replicas that serve, by name."""
        found = self.http.get("/health").json()["replicas"]
        return {one["replica"]: one for one in found if one["status"] == "ready"}

    def actor(self, name: str) -> psutil.Process:
        """The process of a replica: the parent of its engine."""
        return psutil.Process(self.replicas()[name]["engine_pid"]).parent()

    def stop(self) -> None:
        self.http.close()
        self.note_family()
        self.process.kill()
        self.process.wait()
        until(lambda: not self.alive(), f"the end of {self.alive()}")


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Stream(threading.Thread):
    """A streamed answer, read in a thread of its own."""

    def __init__(self, server: RayServer, prompt: str, max_tokens: int = 100):
        super().__init__(daemon=True)
        self.server, self.events, self.replica, self.label = server, [], "", ""
        self.body = {
            "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True,
            "stream": True,
        }  # fmt: skip
        self.start()

    def run(self) -> None:
        with self.server.http.stream("POST", "/v1/completions", json=self.body) as response:
            self.replica = response.headers["x-labkit-replica"]
            self.label = response.headers["x-request-id"]
            for line in response.iter_lines():
                if line.startswith("data: "):
                    self.events.append(line.removeprefix("data: "))

    def running(self) -> "Stream":
        """Waits for the first events."""
        until(lambda: len(self.events) > 2, "a stream that has begun")
        return self

    def ended(self) -> "Stream":
        """Waits for the end."""
        self.join(PATIENCE_S)
        assert not self.is_alive()
        return self

    @property
    def error(self) -> dict | None:
        """The error event that it ended with."""
        return None if self.events[-1] == "[DONE]" else json.loads(self.events[-1]).get("error")
