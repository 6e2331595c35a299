"""A request's life as a real server shows it: clients that leave, an engine that is killed."""

import json
import threading
import time
import urllib.request
from dataclasses import dataclass

import psutil

from labkit.measure.bench.served import Served
from labkit.measure.experiments.processes_http import PATIENCE_S, Stream, get

ENDLESS = 900  # tokens: more than anybody here reads
LOOK_S = 0.02


@dataclass(frozen=True)
class Moment:
    """What `/v1/requests` and `/live` show at one moment."""

    when: str
    requests: list[dict]  # id, label, state, output_tokens, blocks
    blocks_in_use: int

    def line(self) -> str:
        told = ", ".join(
            f"{one['label']} (…{one['id'][-6:]}) {one['state']}, {one['blocks']} blocks"
            for one in self.requests
        )
        return f"{self.when:21} {self.blocks_in_use:2} blocks in use; {told or 'nobody'}"


def moment(server: Served, when: str) -> Moment:
    blocks = blocks_in_use(server)
    return Moment(when, get(server, "/v1/requests")[1]["data"], blocks)


def blocks_in_use(server: Served) -> int:
    """As the engine counts them now."""
    address = f"http://127.0.0.1:{server.port}/live"
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(address, timeout=PATIENCE_S) as page:
        line = next(line for line in page if line.startswith(b"data: "))
    state = json.loads(line.removeprefix(b"data: "))
    return round(state["kv_usage"] * state["num_blocks"])


def held(server: Served) -> int:
    """The blocks of all open requests, which share none."""
    return sum(one["blocks"] for one in get(server, "/v1/requests")[1]["data"])


def until(found, patience: float = PATIENCE_S):
    """Asks until the answer is true; returns it. TimeoutError when it takes too long."""
    last = time.monotonic() + patience
    while not (answer := found()):
        if time.monotonic() > last:
            raise TimeoutError(f"not within {patience:g} s")
        time.sleep(LOOK_S)
    return answer


@dataclass(frozen=True)
class Life:
    """Two clients of one label: the moments, what each read, and how soon the blocks of the one
    that left were free (seconds)."""

    moments: list[Moment]
    texts: tuple[str, str]
    ids: tuple[str, str]
    freed_s: float


PROMPTS = (
    "Here is a list of things that one may do on a rainy day at home, with friends or alone, "
    "in a house full of books and with a kettle on the stove. First of all",
    "We count slowly, and leave nothing out, so that everybody in the room can follow us from the "
    "first number to the last: one, two, three,",
)


def two_clients(server: Served, prompts: tuple[str, str] = PROMPTS) -> Life:
    """Both use the label "job-1"; the first hangs up in the middle, the second reads on."""
    moments = [moment(server, "before")]
    first, second = (Stream(server, p, ENDLESS, request_id="job-1") for p in prompts)
    first.take(6), second.take(6)
    until(lambda: blocks_in_use(server) == held(server))  # /live is up to 0.2 s old
    moments.append(moment(server, "both stream"))
    first.leave()
    left = time.monotonic()
    until(lambda: len(get(server, "/v1/requests")[1]["data"]) == 1)
    freed = time.monotonic() - left
    until(lambda: blocks_in_use(server) == held(server))
    moments.append(moment(server, "the first has hung up"))
    second.take(6)
    second.leave()
    until(lambda: blocks_in_use(server) == moments[0].blocks_in_use)
    moments.append(moment(server, "the second too"))
    return Life(moments, (first.text, second.text), (first.id, second.id), freed)


@dataclass(frozen=True)
class Death:
    """Seconds after the engine was killed. `errors`: until each stream had its error event;
    `unhealthy`: until /health said 503, `ready`: until it said 200 again; `answer`: until a new
    request had its first token. `code` is the error's, `status` what /health said meanwhile."""

    errors: list[float]
    code: str
    unhealthy: float
    ready: float
    answer: float
    status: str


def kill_engine(server: Served, streams: int = 3) -> Death:
    """Kills the engine process under so many open streams, and watches what clients see."""
    open_ones = [Stream(server, f"Story {i}:", ENDLESS).take(2) for i in range(streams)]
    pid, ends = get(server, "/health")[1]["engine_pid"], [0.0] * streams

    def wait_for_the_end(number: int) -> None:
        open_ones[number].rest()
        ends[number] = time.monotonic()

    waiting = [
        threading.Thread(target=wait_for_the_end, args=(number,), daemon=True)
        for number in range(streams)
    ]
    for thread in waiting:
        thread.start()
    killed = time.monotonic()
    psutil.Process(pid).kill()
    status = until(lambda: unhealthy(server))
    noticed = time.monotonic() - killed
    for thread in waiting:
        thread.join(PATIENCE_S)
    until(lambda: get(server, "/health")[0] == 200)
    ready = time.monotonic() - killed
    Stream(server, "Again:", 2).take(1).leave()
    errors = [round(end - killed, 3) for end in ends]
    code = open_ones[0].error["code"] if open_ones[0].error else "none"
    return Death(errors, code, noticed, ready, time.monotonic() - killed, status)


def unhealthy(server: Served) -> str | None:
    """What /health says of itself while it says 503."""
    code, said = get(server, "/health")
    return said["status"] if code == 503 else None
