"""`python -m labkit.measure.bench`: what `python3 -m labkit bench` runs inside `.venv`."""

import sys

from labkit.console import make_safe
from labkit.measure.bench import cli

if __name__ == "__main__":
    make_safe()
    sys.exit(cli.main(sys.argv[1:]))
