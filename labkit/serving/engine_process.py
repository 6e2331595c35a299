"""The engine process: loads the model, then does steps. It knows tokens, and no text or HTTP.

    python -m labkit.serving.engine_process     with an `EngineConfig` as JSON on standard input

It lives as long as its standard input is open: when the API process ends, however that ends, the
system closes the pipe, and the engine ends with it.
"""

import gc
import os
import signal
import sys
import threading
import time

import msgspec
import zmq

from labkit.serving import messages
from labkit.serving.messages import Connected, EngineConfig, Failed


def main() -> int:
    config = msgspec.json.decode(sys.stdin.buffer.readline(), type=EngineConfig)
    threading.Thread(target=end_with_parent, args=(sys.stdin.fileno(),), daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM):  # also sent to a whole group: Ctrl-C, systemd
        signal.signal(number, signal.SIG_IGN)  # they are for the API process, which drains
    die_with_parent()
    with zmq.Context() as context:
        inbox, outbox = context.socket(zmq.PULL), context.socket(zmq.PUSH)
        inbox.connect(config.inbox)
        outbox.connect(config.outbox)

        def send(message) -> None:
            outbox.send(messages.encode(message))

        def receive(wait: bool):
            if not inbox.poll(None if wait else 0):
                return None
            return messages.decode_to_engine(inbox.recv())

        send(Connected())
        status = serve(config, receive, send)
        inbox.close()
        outbox.close(linger=1000)  # ms, for the last words
        return status


def serve(config: EngineConfig, receive, send) -> int:
    """Loads the model and answers messages until a `Stop`; returns the exit status."""
    try:
        loop, ready = load(config)
    except (ValueError, OSError, RuntimeError, MemoryError, ImportError) as error:
        send(Failed(" ".join(str(error).split()) or type(error).__name__))
        return 1
    from labkit.serving.engine_loop import run

    gc.freeze()  # hundreds of thousands of objects that stay: nobody looks for garbage there
    send(ready)
    run(loop, receive, send)
    return 0


def load(config: EngineConfig):
    """The engine loop of a configuration, and what the API has to know of it."""
    began, mine = time.monotonic(), None
    if config.mine:  # before anything is imported that a learner's part may be in
        from labkit.mine import install

        mine = install()
    from labkit import rungs
    from labkit.library import Engine
    from labkit.mine import REFERENCE, has_part_of
    from labkit.serving.engine_loop import EngineLoop

    options = {**config.options, "clock": time.monotonic}
    if config.device.startswith("paced:"):
        from labkit import paced

        loaded = paced.load(config.model, config.device.removeprefix("paced:"), config.dtype)
    else:
        loaded = rungs.load_for(
            config.rung, config.model, config.dtype, config.device, with_tokenizer=False,
            attention="torch" if has_part_of(REFERENCE) else config.attention,
        )  # fmt: skip
    engine = Engine(loaded, config.rung, **options)
    loop = EngineLoop(engine, config.max_queued_requests)
    shape = loaded.model.config
    positions = getattr(shape, "max_position", None) or shape.max_position_embeddings
    ready = loop.describe(config.dtype, config.device, positions, time.monotonic() - began)
    ready.num_bytes = held_bytes(config.device) + unused_bytes(engine.core, config.device)
    if mine is not None:
        ready.mine, ready.problems = mine.loaded, mine.problems
    return loop, ready


def held_bytes(device: str) -> int:
    """What this process holds of its device's memory; on a CPU without the files that it maps,
    which all engines share and the system may drop."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.memory_reserved()
    return own_bytes(os.getpid())


def own_bytes(pid: int) -> int:
    """The host's memory that a process has to itself."""
    import psutil

    process = psutil.Process(pid)
    told = process.memory_info()
    return told.rss - told.shared if hasattr(told, "shared") else process.memory_full_info().uss


def unused_bytes(core, device: str) -> int:
    """What its caches on a CPU will take: their memory is the system's until it is written to."""
    runner = getattr(core, "runner", None)
    if runner is None or not device.startswith("cpu"):
        return 0
    caches = (runner.cache, runner.host_cache)
    return sum(cache.num_bytes for cache in caches if cache is not None)


def end_with_parent(stdin: int) -> None:
    """Waits for the end of standard input, then ends this process at once."""
    while os.read(stdin, 1024):
        pass
    os._exit(0)


def die_with_parent() -> None:
    """On Linux the kernel ends this process with its parent, even where Python hangs."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


if __name__ == "__main__":
    sys.exit(main())
