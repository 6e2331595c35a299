"""`serve --replicas N`: a Ray cluster of its own on this machine, which ends with this process.

Never somebody else's: no address of a running cluster is looked at.
"""

import logging
import os
import secrets
import signal
import sys
import tempfile
import threading
from argparse import Namespace
from contextlib import suppress

from labkit.console import SetupError, make_safe
from labkit.environment import again
from labkit.fleet.ray_serve import sitter as sitters
from labkit.serving.server import is_loopback, listen
from labkit.serving.text import TextSide

MOST_PER_CORE = 4  # replicas; more of them only share what there is
LOOK_S = 0.5
TRIES = 2  # to start Ray, which gives up after 30 s
STORE_BYTES = 100_000_000  # of Ray's object store, which is hardly used
LAST_WORDS_S = 15.0  # for Ray itself, when all requests are finished
VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_SERVE_LOG_TO_STDERR": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # its new way, which it would warn of
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # so it stays on 127.0.0.1, on Linux too
    "RAY_AUTH_MODE": "token",  # and nobody else on this machine may use it
}
log = logging.getLogger("labkit.server")


def run(options: Namespace) -> int:
    """Serves until a signal; returns the exit status. Raises SetupError, ModelError."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    refuse_too_many(options.max_replicas, cores)
    for model in options.models.values():
        TextSide.load(model)  # an unknown one is told now, not by each replica
    options.local_only = is_loopback(options.host)
    with listen(options.host, options.port) as free:  # taken, or 0: better known before Ray starts
        options.port = free.getsockname()[1]
    stopping = threading.Event()
    folder = tempfile.mkdtemp(prefix="labkit-ray-", dir="/tmp" if os.path.isdir("/tmp") else None)
    address = f"http://{options.host}:{options.port}"
    print(f"Open: {address}    (starting Ray and {options.replicas} x {options.model})", flush=True)
    mark = secrets.token_hex(32)
    sitter = sitters.start(mark, folder)
    try:
        start_ray(options, cores, folder, mark, sitter.pid)
        on_signals(stopping)
        deploy(options, cores)
        if wait_until_running(options, stopping):
            print(f"Ready: {address}  {banner(options)}", flush=True)
            watch(stopping)
        return 0
    finally:
        end(options.drain_timeout)
        os.environ.pop(sitters.MARK, None)
        sitter.stdin.close()
        sitter.wait()


def refuse_too_many(replicas: int, cores: int) -> None:
    """All replicas share the cores; Ray's own count of CPUs is divided among them."""
    if replicas > MOST_PER_CORE * cores:
        raise SetupError(
            f"{replicas} replicas are too many for {cores} cores",
            f"{MOST_PER_CORE} a core are the most, {MOST_PER_CORE * cores} here",
            again(f"serve --replicas {min(2, cores)} --max-replicas {cores}"),
        )


def start_ray(options: Namespace, cores: int, folder: str, mark: str, sitter: int):
    """Ray's processes, as children of this one that the system ends with it. Raises SetupError."""
    token = secrets.token_hex(32)  # not the mark, which stands on a command line for all to see
    os.environ.update(VARIABLES, RAY_AUTH_TOKEN=token)  # Ray's library reads them as it is loaded
    os.environ[sitters.MARK] = mark
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // options.max_replicas)))
    import ray
    from ray import serve

    logging.getLogger(serve.__name__).setLevel(logging.WARNING)
    for _ in range(TRIES):
        try:
            return ray.init(
                address="local", num_cpus=cores, include_dashboard=False, log_to_driver=False,
                logging_level=logging.ERROR, object_store_memory=STORE_BYTES,
                _node_ip_address="127.0.0.1", _temp_dir=folder,
            )  # fmt: skip
        except Exception as error:  # Ray has no narrower one; a busy machine is too slow for it
            why = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            ray.shutdown()
            sitters.end_all(mark, folder, {os.getpid(), sitter})
    raise SetupError("Ray can't be started", f"in {TRIES} attempts; {why}", again("doctor"))


def on_signals(stopping: threading.Event) -> None:
    """The first SIGTERM or Ctrl-C drains, a second Ctrl-C ends at once. After Ray's start, which
    puts in a handler of its own."""

    def stop(number: int, _) -> None:
        if stopping.is_set() and number == signal.SIGINT:
            os._exit(130)  # and Ray's processes with this one
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


def deploy(options: Namespace, cores: int) -> None:
    from ray import serve
    from ray.serve.config import HTTPOptions

    from labkit.fleet.ray_serve.app import FRONT_CPUS, application

    share = round((cores - FRONT_CPUS) / options.max_replicas - 0.005, 2)
    resources = {"num_cpus": min(1.0, share)}
    if options.device.startswith("cuda"):
        resources["num_gpus"] = gpu_share(options.max_replicas)
    http = HTTPOptions(host=options.host, port=options.port)
    serve.start(proxy_location="HeadOnly", http_options=http)
    serve.run_many(
        [serve.RunTarget(application(options, resources), name="labkit")],
        wait_for_applications_running=False,
    )


def gpu_share(replicas: int) -> float:
    """What of a GPU a replica gets; several may share one. Raises SetupError when there is none."""
    import ray

    found = ray.cluster_resources().get("GPU", 0)
    if not found:
        why = "Ray finds 0 GPUs on this machine, and --device cuda needs one"
        raise SetupError("there is no GPU for the replicas", why, again("doctor"))
    return min(1.0, int(10_000 * found / replicas) / 10_000)


def wait_until_running(options: Namespace, stopping: threading.Event) -> bool:
    """Whether the replicas serve; False when a signal came first. Raises SetupError."""
    from ray import serve

    while not stopping.wait(LOOK_S):
        found = serve.status().applications["labkit"]
        if found.status == "RUNNING":
            return True
        if found.status in ("DEPLOY_FAILED", "UNHEALTHY"):
            raise SetupError(
                f"{options.replicas} replicas of {options.model} can't be started",
                reason(found), again(f"serve --model {options.model}"),
            )  # fmt: skip
    return False


def reason(application) -> str:
    """The last line that a replica said; above it stand Ray's."""
    messages = [one.message for one in application.deployments.values() if one.message]
    lines = [line for line in "\n".join(messages or [application.message]).splitlines() if line]
    failed = [line for line in lines if "Error" in line or "Failed" in line]
    said = (failed or lines or ["Ray doesn't say why"])[-1].strip()
    return said.split(": ", 1)[-1] if said.startswith("labkit.") else said  # without its class


def watch(stopping: threading.Event) -> None:
    """Waits for a signal, and tells of replicas that come and go."""
    from ray import serve

    before = None
    while not stopping.wait(4 * LOOK_S):
        states = serve.status().applications["labkit"].deployments["replica"].replica_states
        now = {str(getattr(name, "value", name)).lower(): count for name, count in states.items()}
        if now != before and before is not None:
            log.info("replicas", extra=now)
        before = now


def banner(options: Namespace) -> str:
    number = f"{options.replicas}"
    if options.max_replicas != options.replicas:
        number += f" to {options.max_replicas}"
    many = "replica" if number == "1" else "replicas"
    return f"{number} {many} of {', '.join(options.models)}, router {options.router}"


def end(drain_timeout: float) -> None:
    """Finishes what is open, then ends Ray's processes."""
    import ray

    if ray.is_initialized():
        ending = threading.Thread(target=drain, args=(drain_timeout,), daemon=True)
        ending.start()
        ending.join(drain_timeout + LAST_WORDS_S)
        with suppress(Exception):
            ray.shutdown()


def drain(timeout: float) -> None:
    """What fails here fails because something is gone already."""
    from ray import serve

    with suppress(Exception):
        front = serve.get_app_handle("labkit")
        front.drain.remote(timeout).result(timeout_s=timeout + LAST_WORDS_S)
    with suppress(Exception):
        serve.shutdown()


def main(argv: list[str]) -> int:
    """`python -m labkit.fleet.ray_serve.local …`, the options of `serve`."""
    make_safe()
    from labkit.serving import logs, options

    chosen = options.parse(argv)
    logs.set_up(chosen.log_format)
    try:
        return run(chosen)
    except (SetupError, ValueError) as error:
        print(error if isinstance(error, SetupError) else f"FAIL serve: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
