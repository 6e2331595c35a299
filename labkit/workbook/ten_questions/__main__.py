"""`python3 -m labkit report`, inside `.venv`."""

import sys

from labkit.console import make_safe
from labkit.workbook.ten_questions.cli import main

if __name__ == "__main__":
    make_safe()
    sys.exit(main(sys.argv[1:]))
