"""A configuration, or an attack on one, as a line of text to paste into a neighbour's notebook."""

import base64
import json
import zlib
from collections.abc import Iterable

from labkit.measure.capstone.attacks import ATTACKER
from labkit.measure.capstone.configuration import Configuration
from labkit.measure.simulate.requests import Arrival

MARK = "labkit-10-"
MOST_BYTES = 100_000  # of what a text unfolds to: an attack of 120 requests has 4,000
LARGEST = 1e9  # of a number in a request
FIELDS = ("time", "num_prompt_tokens", "num_output_tokens", "priority", "deadline")


class PasteError(ValueError):
    """A pasted text that is not whole; the message says what to do."""


def configuration_as_text(configuration: Configuration) -> str:
    return fold("configuration", configuration.differences)


def attack_as_text(arrivals: Iterable[Arrival]) -> str:
    """Without tenants and names: in an attack all requests are the attacker's."""
    return fold("attack", [[getattr(one, name) for name in FIELDS] for one in arrivals])


def configuration_from_text(text: str) -> Configuration:
    """Raises PasteError, or ConfigurationError for a choice that there is not."""
    found = unfold("configuration", text)
    if not isinstance(found, dict):
        raise PasteError(f"a configuration is an object, not {type(found).__name__}; copy it again")
    return Configuration.from_json(found)


def attack_from_text(text: str) -> list[Arrival]:
    """Raises PasteError. Whether it is within the limits of an attack, `attack` says."""
    rows = unfold("attack", text)
    if not isinstance(rows, list) or not all(map(is_request, rows)):
        raise PasteError(f"this is no list of requests ({', '.join(FIELDS)}); copy the text again")
    return [Arrival(**dict(zip(FIELDS, row, strict=True)), tenant=ATTACKER) for row in rows]


def is_request(row) -> bool:
    if not isinstance(row, list) or len(row) != len(FIELDS):
        return False
    *whole, deadline = row[1:]
    counts = all(type(number) is int for number in whole) and min(whole[:2]) >= 1
    times = [row[0]] if deadline is None else [row[0], deadline]
    known = counts and all(type(one) in (int, float) for one in times)
    return known and all(abs(one) < LARGEST for one in (*whole, *times))


def fold(kind: str, value) -> str:
    packed = zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 9)
    return f"{MARK}{kind}:{base64.b64encode(packed).decode()}"


def unfold(kind: str, text: str):
    """What `fold` was given. Spaces and line ends, which a chat adds, don't matter."""
    text = "".join(text.split())
    mark = f"{MARK}{kind}:"
    if not text.startswith(mark):
        raise PasteError(f"the text begins with {text[:24]!r}, not with {mark!r}; copy all of it")
    try:
        unpacker = zlib.decompressobj()
        packed = base64.b64decode(text.removeprefix(mark), validate=True)
        plain = unpacker.decompress(packed, MOST_BYTES)
        if unpacker.eof:
            return json.loads(plain)
    except (ValueError, zlib.error, RecursionError) as error:
        raise PasteError(f"the text is damaged ({error}); copy it again, all of it") from None
    raise PasteError(f"the text is cut, or longer than {MOST_BYTES:,} bytes; copy it again")
