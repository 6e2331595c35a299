"""`python -m labkit.measure.simulate`: what `python3 -m labkit simulate` runs inside `.venv`."""

import sys

from labkit.console import make_safe
from labkit.measure.simulate import cli

if __name__ == "__main__":
    make_safe()
    sys.exit(cli.main(sys.argv[1:]))
