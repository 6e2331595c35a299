"""A server whose scheduler thinks long, for `bench bottleneck`: labkit's own, with one more policy.

    python -m labkit.measure.bench.pairwise --policy pairwise ...     as `labkit.serving`
    python -m labkit.measure.bench.pairwise                           its engine process

Nothing here waits or counts down: the policy does real work, more than it should.
"""

import sys
from collections.abc import Iterable

from labkit.engine.policies import POLICIES
from labkit.engine.policies.fcfs import FCFS
from labkit.engine.request import Request


class Pairwise(FCFS):
    """Those that run go in the order of how much of their text others have too.

    Compares each with each in every step: time grows with the square of the batch. SGLang gives
    up sorting its line by shared prefixes when more than 128 wait, for a like reason.
    """

    def in_order(self, running: Iterable[Request]) -> list[Request]:
        running = list(running)
        return sorted(running, key=lambda one: -sum(shared(one, other) for other in running))


def shared(one: Request, other: Request) -> int:
    """How many different tokens both have."""
    return len({*one.token_ids} & {*other.token_ids})


def main(argv: list[str]) -> int:
    POLICIES["pairwise"] = Pairwise
    if not argv:
        from labkit.serving import engine_process

        return engine_process.main()
    from labkit.serving import __main__ as server
    from labkit.serving.homes import ProcessHome

    ProcessHome.module = __spec__.name
    return server.main(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
