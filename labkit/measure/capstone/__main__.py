"""`python3 -m labkit capstone`, once it is known that the packages are there."""

import sys

from labkit.console import make_safe
from labkit.measure.capstone import cli

if __name__ == "__main__":
    make_safe()
    sys.exit(cli.main(sys.argv[1:]))
