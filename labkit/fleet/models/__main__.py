"""`serve` with several models, inside `.venv`.

    python -m labkit.fleet.models --model a --model b=PATH --model-memory 4GB
"""

import sys

from labkit.console import SetupError, make_safe


def main(argv: list[str]) -> int:
    """Serves until it is told to stop; returns the exit status."""
    make_safe()
    mine = None
    if "--mine" in argv:  # before anything is imported that a learner's part may be in
        from labkit.mine import install

        mine = install()
    from labkit.serving import logs, options

    chosen = options.parse(argv)
    logs.set_up(chosen.log_format)
    from labkit.fleet.models.server import serve
    from labkit.serving.__main__ import run

    try:
        return run(serve(chosen, mine))
    except (SetupError, ValueError) as error:
        print(error if isinstance(error, SetupError) else f"FAIL serve: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
