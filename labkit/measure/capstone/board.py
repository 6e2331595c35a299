"""The leaderboard: one JSON file in the learner's folder, which two notebooks may write at once."""

import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from labkit.measure.capstone.configuration import Configuration
from labkit.measure.capstone.scoring import Score
from labkit.measure.capstone.workloads import Workload
from labkit.measure.cost import PRICES
from labkit.paths import alone_with, my_dir, write_atomic

LONGEST_NAME = 40


class BoardError(ValueError):
    """A leaderboard that can't be read, or a name that can't be written on it."""


@dataclass(frozen=True)
class Entry:
    """One line of it. `cost` is in US dollars for a million good tokens."""

    name: str
    date: str
    cost: float
    is_valid: bool
    met: dict[str, float]
    configuration: Configuration


def board_file() -> Path:
    return my_dir() / "capstone.json"


def contest(workload: Workload) -> str:
    """Scores compare when workload, promises and list prices are the same."""
    prices = {card: price.per_hour for card, price in PRICES.items()}
    return f"{workload.fingerprint} {json.dumps(prices, sort_keys=True)}"


def save(name: str, score: Score, workload: Workload, file: Path | None = None) -> Entry:
    """Writes a score on the board under a name; the same configuration under it is written over.

    Only scores under list prices belong there, which is the caller's to see to. Raises BoardError
    for a name without letters, or a file that is no leaderboard.
    """
    name = " ".join(name.split())
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise BoardError(f"name is {name!r}; 1 to {LONGEST_NAME} printable characters are needed")
    file = file or board_file()
    row = {
        "name": name, "date": date.today().isoformat(), "contest": contest(workload),
        "cost": None if score.cost == float("inf") else score.cost, "is_valid": score.is_valid,
        "met": score.met, "configuration": score.configuration.to_json(),
    }  # fmt: skip
    same = ("name", "contest", "configuration")
    with alone_with(file):
        rows = [old for old in read(file) if any(old[key] != row[key] for key in same)]
        write_atomic(file, json.dumps([*rows, row], indent=1, ensure_ascii=False) + "\n")
    return entry(row)


def leaderboard(workload: Workload, file: Path | None = None) -> list[Entry]:
    """The entries for this workload, the best first: who keeps every promise, then by cost."""
    rows = [row for row in read(file or board_file()) if row["contest"] == contest(workload)]
    return sorted(map(entry, rows), key=lambda one: (not one.is_valid, one.cost, one.date))


def entry(row: dict) -> Entry:
    cost = float("inf") if row["cost"] is None else row["cost"]
    chosen = Configuration.from_json(row["configuration"])
    return Entry(row["name"], row["date"], cost, row["is_valid"], row["met"], chosen)


def read(file: Path) -> list[dict]:
    """All rows; none where there is no file yet. Raises BoardError."""
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
        for row in rows:
            row["contest"], row["is_valid"], row["cost"], row["met"], row["date"], row["name"]
            Configuration.from_json(row["configuration"])
    except FileNotFoundError:
        return []
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise BoardError(
            f"leaderboard {file} can't be read ({type(error).__name__}: {error}); mend it, or move "
            "it away to begin a new one"
        ) from None
    return rows
