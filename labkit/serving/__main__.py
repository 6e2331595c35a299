"""`python3 -m labkit serve …`, inside `.venv`."""

import asyncio
import sys

from labkit.console import SetupError, make_safe


def main(argv: list[str]) -> int:
    """Serves until it is told to stop; returns the exit status."""
    make_safe()
    mine = None
    if "--mine" in argv:  # before anything is imported that a learner's part may be in
        from labkit.mine import install

        mine = install()
    from labkit.serving import logs, naming, options

    chosen = options.parse(argv)
    if naming.has_several(chosen):
        print("FAIL serve: several models are `python -m labkit.fleet.models`", file=sys.stderr)
        return 2
    logs.set_up(chosen.log_format)
    from labkit.serving import server
    from labkit.serving.text import TextSide

    try:
        return run(server.run(chosen, TextSide.load(chosen.model), mine))
    except (SetupError, ValueError) as error:
        print(error if isinstance(error, SetupError) else f"FAIL serve: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def run(serving) -> int:
    """On a faster event loop where there is one."""
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.run(serving)
    return uvloop.run(serving)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
