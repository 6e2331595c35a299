"""Replicas on Ray Serve, and a Triton Inference Server, for notebook 09: real ones where they are
installed, else what was stored, with its date."""

import http.client
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path

import psutil

from labkit import bootstrap, machine, paths, ray_wheel
from labkit.console import SetupError

FIGURES = Path(__file__).parents[1] / "figures"
COMMAND = "python3 -m labkit.measure.experiments.fleet_replicas"
KIND = "replicas-on-ray"
PATIENCE_S, LAST_S = 120.0, 20.0
NUM_SUBJECTS, ROUNDS = 4, 4
LONG = 400  # tokens of the streams that see a replica die


def stored(kind: str) -> dict:
    """The newest stored result of a kind. FileNotFoundError when there is none."""
    files = sorted(FIGURES.glob(f"{kind}-*.json"))
    if not files:
        raise FileNotFoundError(f"{FIGURES} has no {kind}-*.json; run {COMMAND}")
    return json.loads(files[-1].read_text(encoding="utf-8")) | {"stored": True}


def on_ray(install: bool = False) -> dict:
    """Two replicas of `tiny` on Ray Serve: who gets which beginning, and one of them killed.

    Measured here where Ray is installed (the extra `ray`) and starts, else the stored result:
    `stored` says which, `why` why not, `date` and `machine` when and where. With `install` it
    installs Ray first where that is missing, and shows how far it is.
    """
    try:
        if install:
            install_ray()
        if importlib.util.find_spec("ray") is None:
            why = "Ray isn't installed here; on_ray(install=True) installs it, 104 MB to download"
            return stored(KIND) | {"why": why}
        return measure()
    except (RuntimeError, OSError, psutil.Error, SetupError) as error:
        return stored(KIND) | {"why": str(error)}


def install_ray() -> None:
    """Adds Ray to `.venv`, if it isn't there. Raises SetupError."""
    ray_wheel.refuse()
    bootstrap.ensure_environment("ray", command="serve --replicas 2")
    importlib.invalidate_caches()


def measure() -> dict:
    """Starts the replicas, asks them, kills one. RuntimeError when they don't start."""
    begin = time.perf_counter()
    with replicas("tiny", 2) as (process, port):
        ready = time.perf_counter() - begin
        found = {"seconds_until_ready": ready, "went": who_gets_what(port)}
        found["killed"] = one_dies(process, port)
    return {
        "date": date.today().isoformat(), "command": COMMAND, "stored": False, "why": "",
        "machine": {"cores": machine.cores()}, **found,
    }  # fmt: skip


@contextmanager
def replicas(model: str, count: int):
    """`serve --replicas` in a process of its own: the process, and its port once it serves."""
    command = [sys.executable, "-m", "labkit.fleet.ray_serve.local", "--model", model,
               "--port", "0", "--replicas", str(count), "--router", "prefix"]  # fmt: skip
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, cwd=paths.repo_root(), stdin=subprocess.DEVNULL,
                                   stdout=said, stderr=subprocess.STDOUT)  # fmt: skip
        try:
            yield process, port_of(process, said)
        finally:
            end(process)


def port_of(process, said) -> int:
    """Waits until the replicas serve. RuntimeError, with what was said, when they don't."""
    last = time.monotonic() + PATIENCE_S
    while True:
        said.seek(0)
        text = said.read().decode("utf-8", "replace")
        if found := re.search(r"Ready: http://[\d.]+:(\d+)", text):
            return int(found[1])
        if process.poll() is not None or time.monotonic() > last:
            raise RuntimeError(f"the replicas don't start; it says: {text.strip()[-800:]}")
        time.sleep(0.1)


def end(process) -> None:
    """Asks it to stop, then kills what is left of it."""
    family = []
    with suppress(psutil.Error):
        family = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(LAST_S)
    for one in [process, *family]:
        with suppress(psutil.Error, OSError):
            one.kill()
    process.wait()


def who_gets_what(port: int) -> list[list[str]]:
    """(subject, replica) of requests; those on one subject begin alike. A round comes at once."""

    def ask(number: int) -> list[str]:
        subject = f"subject {number % NUM_SUBJECTS}"
        begin = f"{subject.capitalize()} has these rules. " * 4
        return [subject, streamed(port, begin + f"Question {number}?", 16)[0]]

    went = []
    with ThreadPoolExecutor(NUM_SUBJECTS) as pool:
        for first in range(0, NUM_SUBJECTS * ROUNDS, NUM_SUBJECTS):
            went += pool.map(ask, range(first, first + NUM_SUBJECTS))
    return went


def one_dies(process, port: int, num_streams: int = 6) -> dict:
    """Streams on both replicas, one of which is killed: how each of them ended."""
    saw = threading.Semaphore(0)
    with ThreadPoolExecutor(num_streams) as pool:
        running = [
            pool.submit(streamed, port, f"Story {number}. " * 8, LONG, saw.release)
            for number in range(num_streams)
        ]
        for _ in range(num_streams):
            saw.acquire(timeout=PATIENCE_S)
        victim = actors(process)[0]
        victim.kill()
        ended = [one.result() for one in running]
    names = sorted({replica for replica, _ in ended})
    return {name: [how for replica, how in ended if replica == name] for name in names}


def actors(process) -> list[psutil.Process]:
    """The processes of the replicas, in order of their ids."""
    family = psutil.Process(process.pid).children(recursive=True)
    return sorted((one for one in family if "Replica:labkit:replica" in " ".join(one.cmdline())),
                  key=lambda one: one.pid)  # fmt: skip


def streamed(port: int, prompt: str, max_tokens: int, first=lambda: None) -> tuple[str, str]:
    """Which replica answered, and how: "whole", "error event" or "broken". `first` is called at
    the first token."""
    body = {"model": "tiny", "prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True,
            "stream": True, "temperature": 0}  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    replica, how, told = "none", "broken", False
    try:
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json"})  # fmt: skip
        response = connection.getresponse()
        replica = response.headers.get("x-labkit-replica", "none")
        for line in response:
            if line.startswith(b"data: ") and not told:
                told = True
                first()
            if line.startswith(b"data: [DONE]"):
                how = "whole"
            elif b'"error"' in line:
                how = "error event"
                break
    except (OSError, http.client.HTTPException):
        how = "broken"
    finally:
        connection.close()
        if not told:
            first()
    return replica, how


def beside(work):
    """The result of a call, made in a thread: a notebook has an event loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


if __name__ == "__main__":
    result = measure()
    file = FIGURES / f"{KIND}-{result['date']}.json"
    file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))
