"""labkit's server for a notebook: it ends with whoever has started it, however that ends.

    python -m labkit.measure.experiments.processes_server OPTIONS   as `labkit.serving`
    python -m labkit.measure.experiments.processes_server           its engine process

It knows the policy "pairwise" too (`bench.pairwise`), for a scheduler that thinks long.
"""

import os
import sys
import threading
import time

import psutil

from labkit.engine.policies import POLICIES
from labkit.measure.bench.pairwise import Pairwise

LOOK_S = 0.5


def main(argv: list[str]) -> int:
    from labkit.serving import engine_process

    POLICIES["pairwise"] = Pairwise
    if not argv:
        return engine_process.main()
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    engine_process.die_with_parent()
    from labkit.serving import __main__ as server
    from labkit.serving.homes import ProcessHome

    ProcessHome.module = __spec__.name
    return server.main(argv)


def end_with(parent: int) -> None:
    """Ends this process at once when `parent` is gone, also where the system doesn't do it."""
    while os.getppid() == parent and psutil.pid_exists(parent):
        time.sleep(LOOK_S)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
