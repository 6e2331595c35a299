"""The leaderboard: one JSON file in the learner's folder, which two notebooks may write at once."""

import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from labkit.measure.capstone.configuration import Configuration
from labkit.measure.capstone.scoring import Score
from labkit.measure.capstone.workloads import Workload
from labkit.measure.cost import PRICES
from labkit.paths import alone_with, my_dir, read_at_most, write_atomic

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
    if not is_name(name):
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
        try:
            check_row(len(rows), row)
        except (ValueError, LookupError, TypeError) as error:
            raise BoardError(f"this score can't be saved: {error}") from None
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
        rows = json.loads(read_at_most(file).decode("utf-8"))
        for number, row in enumerate(listed(rows)):
            check_row(number, row)
    except FileNotFoundError:
        return []
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise BoardError(
            f"leaderboard {file} can't be read ({type(error).__name__}: {error}); mend it, or move "
            "it away to begin a new one"
        ) from None
    return rows


def listed(rows) -> list:
    if not isinstance(rows, list):
        raise ValueError(f"it holds {type(rows).__name__}, not a list of rows")
    return rows


def check_row(number: int, row: dict) -> None:
    """Raises ValueError, LookupError or TypeError for a row that `save` can't have written."""
    Configuration.from_json(row["configuration"])
    for key, is_fine in {"name": is_name, "date": is_date, "contest": is_text, "cost": is_cost,
                         "is_valid": is_flag, "met": is_met}.items():  # fmt: skip
        if not is_fine(row[key]):
            raise ValueError(f"{key} of row {number} is {str(row[key])[:40]!r}")


def is_name(value) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= LONGEST_NAME and value.isprintable()


def is_date(value) -> bool:
    return isinstance(value, str) and date.fromisoformat(value).isoformat() == value


def is_text(value) -> bool:
    return isinstance(value, str)


def is_cost(value) -> bool:
    """None is the cost when no token is good."""
    return value is None or type(value) in (int, float) and 0 < value < 1e9


def is_flag(value) -> bool:
    return isinstance(value, bool)


def is_met(value) -> bool:
    shares = value.values() if isinstance(value, dict) else [None]
    return all(type(share) in (int, float) and 0 <= share <= 1 for share in shares)
