"""The rows of the ladder: asked of a process of its own, and kept in the user's cache folder.

A kept row is of one machine (processor, cores, GPU), one device, one model and one text of
labkit's engine, so each is measured once. It carries the date.
"""

import contextlib
import hashlib
import json
import math
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from labkit.paths import cache_dir, my_dir, repo_root, write_atomic
from labkit.workbook import ladder_run

LOADING_S = 300.0  # until a slow disk has the model in memory; compiling counts too
MEASURED = ("model", "engine", "kernels")  # rooms whose text the rows depend on
NUMBERS = ("tokens_per_s", "ttft_p50_s", "kv_held_bytes", "token_forwards", "tokens", "seconds")
FILES = ("rungs.py", "paced_device.py", "measure/bench/ladder.py", "measure/bench/drive.py",
         "measure/bench/watch.py", "workbook/ladder_run.py")  # fmt: skip


@dataclass
class Asked:
    """What a process has said. `failed` tells why it has no row, as {"why": ..., details}."""

    rows: dict[str, dict] = field(default_factory=dict)
    failed: dict | None = None
    parts: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def ask(
    rungs: Sequence[str],
    model: str,
    device: str,
    *,
    mine: bool = False,
    reference: bool = False,
    seconds: float = 0.0,
    tell: Callable[[dict], None] = lambda row: None,
) -> Asked:
    """Measures `rungs` in a new process, which ends before this returns.

    With `mine` on the learner's parts, each rung in at most `seconds` (0: as long as it takes).
    `tell` hears of each row when it is there.
    """
    asked = {"rungs": [*rungs], "model": model, "device": device, "mine": mine,
             "reference": reference, "seconds": seconds}  # fmt: skip
    path = os.pathsep.join([str(repo_root()), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "LABKIT_MY": str(my_dir().absolute()), "PYTHONPATH": path,
                   "PYTHONIOENCODING": "utf-8"}  # fmt: skip
    answer = Asked()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", ladder_run.__name__, json.dumps(asked)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environment,
            start_new_session=True,
        )  # fmt: skip
        try:
            listen(process, answer, seconds, tell)
        finally:  # an interrupt, too
            end(process)
        errors.seek(0)
        said = errors.read().decode("utf-8", "replace")
    if answer.failed is None and len(answer.rows) < len(rungs):
        answer.failed = ending(said, process.returncode, seconds)
    return answer


def end(process) -> None:
    """Ends a process, and on POSIX what a part has started in it."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def listen(process, answer: Asked, seconds: float, tell) -> None:
    """Takes what the process says until it ends, or has been silent for too long."""
    lines: queue.Queue = queue.Queue()

    def read():
        with process.stdout:
            for line in process.stdout:
                lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    patience, heard = LOADING_S, time.monotonic()
    while True:
        try:
            line = lines.get(timeout=min(patience, 1.0))
        except queue.Empty:  # what a part has started may hold the pipe open when all has ended
            if process.poll() is not None or time.monotonic() > heard + patience:
                return
            continue
        heard = time.monotonic()
        if line is None:
            return
        with contextlib.suppress(ValueError):
            message = json.loads(line)
            if "doing" in message:  # the process has a watchdog of its own, which speaks first
                is_bounded = seconds and message["doing"] == "measuring"
                patience = seconds + 10 if is_bounded else LOADING_S
            if "row" in message:
                row = message["row"] | {"date": time.strftime("%Y-%m-%d")}
                answer.rows[row["rung"]] = row
                tell(row)
            if "failed" in message:
                answer.failed = {"why": "crashed", **message}
            if "parts" in message:
                answer.parts, answer.problems = message["parts"], message["problems"]


def ending(said: str, status: int, seconds: float) -> dict:
    """Why a process ended without a row: its time was over, or something ended it."""
    if "Timeout (" in said:
        own = re.search(rf'File "<(\S+){ladder_run.WITH_YOUR}.*?>", line (\d+) in (\S+)', said)
        where = {"module": own[1], "at": own[3]} if own else {"module": "", "at": ""}
        return {"why": "endless", "seconds": seconds, **where}
    return {"why": "ended", "status": status, "failed": said.strip()[-2000:]}


# ------------------------------------------------------------------ kept


def kept(key: str) -> dict[str, dict]:
    """The rows that have been measured before, by rung; empty where the file can't be read."""
    try:
        rows = json.loads(path_of(key).read_text(encoding="utf-8"))
        return {name: row for name, row in rows.items() if is_whole(row) and row["rung"] == name}
    except (OSError, ValueError, RecursionError, AttributeError):
        return {}


def is_whole(row) -> bool:
    """Whether a row that was kept has all that is shown of it, whoever has edited the file."""
    return (
        isinstance(row, dict)
        and all(type(row.get(name)) in (int, float) for name in NUMBERS)
        and all(math.isfinite(row[name]) for name in NUMBERS)
        and row["tokens_per_s"] > 0
        and all(isinstance(row.get(name), str) and row[name] for name in ("rung", "date"))
        and isinstance(row.get("token_ids"), dict)
    )


def keep(key: str, rows: dict[str, dict]) -> None:
    """Keeps rows for the next time; where that fails they are measured again then."""
    with contextlib.suppress(OSError):
        write_atomic(path_of(key), json.dumps(kept(key) | rows, indent=1) + "\n")


def path_of(key: str):
    return cache_dir() / "ladder" / f"{key}.json"


def key_of(model: str, device: str) -> str:
    """Names machine, device, model and the text of labkit that is measured."""
    import torch

    from labkit import machine
    from labkit.measure.bench.report import cpu_name

    gpu = torch.cuda.get_device_name(device) if device.startswith("cuda") else ""
    about = [cpu_name(), str(machine.cores()), gpu, device, model, torch.__version__]
    digest = hashlib.sha256("\n".join(about).encode())
    labkit = repo_root() / "labkit"
    files = [file for room in MEASURED for file in sorted((labkit / room).rglob("*.py"))]
    for file in [*files, *(labkit / name for name in FILES)]:
        digest.update(file.relative_to(labkit).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()[:16]
