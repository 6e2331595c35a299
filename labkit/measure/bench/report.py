"""What a benchmark prints, and keeps for `--json`: the machine, the formula, notes, tables."""

import json
import os
import platform
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from labkit import environment, machine
from labkit.paths import write_atomic


@dataclass(frozen=True)
class Column:
    """One column of a table: the key of its value in a row, what stands above, how it is shown."""

    key: str
    title: str
    show: str | Callable = "{}"  # a format, or a function from the value to text

    def text(self, row: dict) -> str:
        value = row.get(self.key)
        if value is None:
            return "-"
        return self.show(value) if callable(self.show) else self.show.format(value)


def layout(columns: Sequence[Column], rows: Sequence[dict]) -> str:
    """Rows as text: the first column to the left, the others to the right."""
    cells = [[c.title for c in columns], *([c.text(row) for c in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for line in cells:
        first, *rest = (
            text.rjust(width) if i else text.ljust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        lines.append("  ".join([first, *rest]).rstrip())
    return "\n".join(lines)


@dataclass
class Report:
    """Prints as it is told, and remembers. `tables` holds every row with all its figures."""

    bench: str
    stream: TextIO = field(default_factory=lambda: sys.stdout)
    content: dict = field(default_factory=dict)

    def say(self, text: str = "") -> None:
        print(text, file=self.stream)

    def header(self, formulas: Sequence[str], seed: int, **facts) -> None:
        """The machine, further facts (a model, a dtype), the formulas and the seed."""
        about = machine_facts()
        told = {**facts, "seed": seed}
        self.content |= {"bench": self.bench, "machine": about, **told, "formulas": [*formulas]}
        self.say(
            f"machine   {about['cpu']}, {about['cores']:g} cores, torch {about['torch']} "
            f"with {about['threads']} threads, Python {about['python']}, {about['system']}"
        )
        for name, value in told.items():
            self.say(f"{name:9} {value}")
        for i, formula in enumerate(formulas):
            self.say(f"{'' if i else 'formula':9} {formula}")
        self.say()

    def note(self, text: str) -> None:
        """A sentence that belongs to the result."""
        self.content.setdefault("notes", []).append(text)
        self.say(text)

    def table(self, name: str, columns: Sequence[Column], rows: Sequence[dict]) -> None:
        """Prints the columns of all rows; the rows go to the JSON under `name`."""
        self.content[name] = [*rows]
        self.say(layout(columns, rows) + "\n")

    def keep(self, **values) -> None:
        """What goes to the JSON and has been told in a sentence already."""
        self.content |= values

    def write(self, file: Path | None) -> None:
        """Writes all of it as JSON. OSError when that can't be done."""
        if file is not None:
            write_atomic(file, json.dumps(self.content, indent=1, ensure_ascii=False) + "\n")
            self.say(f"written: {file}")


def machine_facts() -> dict:
    """What a figure depends on: processor, cores, memory in bytes, torch and its threads."""
    import torch

    return {
        "cpu": cpu_name(),
        "cores": machine.cores(),
        "memory_bytes": machine.memory()[0],
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def cpu_name() -> str:
    """The processor as its maker calls it, as far as the system tells."""
    if sys.platform == "darwin":
        status, said = environment.quiet(["sysctl", "-n", "machdep.cpu.brand_string"])
        return said.strip() if status == 0 else platform.machine()
    found = re.search(r"^model name\s*: (.+)", machine.read(Path("/proc/cpuinfo")), re.MULTILINE)
    if found:
        return found.group(1)
    return os.environ.get("PROCESSOR_IDENTIFIER") or platform.processor() or platform.machine()


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.1f}"


def megabytes(num_bytes: float) -> str:
    """In units of 10**6 bytes, with a decimal below 10."""
    return f"{num_bytes / 1e6:,.{0 if num_bytes >= 1e7 else 1}f}"


def percent(share: float) -> str:
    return f"{100 * share:.1f}%"
