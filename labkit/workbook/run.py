"""Executes solution notebooks and keeps what they put out."""

import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

from labkit.paths import write_atomic
from labkit.workbook.build import EDITIONS, dump, notebook
from labkit.workbook.generated import Book
from labkit.workbook.source import Source

CELL_TIMEOUT = 600  # seconds that one cell may take
ROUNDED = (5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600)  # so that a diff means something
WIDGET = "application/vnd.jupyter.widget-view+json"  # nothing without a kernel, with a random id


class RunError(RuntimeError):
    """A cell of a solution raised: the message holds the notebook and the traceback."""


def run(book: Book, source: Source) -> float:
    """Executes the solution of `source` as it would be built now and writes it with outputs.

    Returns the seconds it took. RunError when a cell raises; nothing is written then.
    """
    built = notebook(book, source, EDITIONS["solutions"])
    metadata = built.metadata.copy()
    folder = book.root / "solutions"
    folder.mkdir(exist_ok=True)
    client = NotebookClient(
        built,
        timeout=CELL_TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        store_widget_state=False,
        record_timing=False,
        coalesce_streams=True,
    )
    began = time.perf_counter()
    try:
        client.execute()
    except CellExecutionError as error:
        plain = re.sub(r"\x1b\[[\d;]*m", "", str(error))  # without colours
        raise RunError(f"solutions/{source.name}.ipynb: {plain}") from error
    seconds = time.perf_counter() - began
    built.metadata = metadata  # without the versions of this machine's Python
    built.metadata["labkit"]["run_seconds"] = rounded(seconds)
    clean(built, {sys.prefix: ".venv", str(book.root): ".", str(Path.home()): "~"})
    write_atomic(folder / f"{source.name}.ipynb", dump(built))
    return seconds


def rounded(seconds: float) -> int:
    """Seconds rounded up to one of ROUNDED."""
    return next((step for step in ROUNDED if seconds <= step), ROUNDED[-1])


def clean(built: NotebookNode, paths: Mapping[str, str]) -> None:
    """Takes out of the outputs what only this machine knows: paths, and ids of live widgets."""
    for cell in built.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            data.pop(WIDGET, None)
            for holder, key in [(output, "text"), (data, "text/plain"), (data, "text/html")]:
                for path, short in paths.items():
                    if key in holder:
                        holder[key] = holder[key].replace(path, short)
