"""Runs pip, tells what it waits for, and says in one sentence why it failed."""

import re
import subprocess
from collections import deque
from collections.abc import Callable
from pathlib import Path

from labkit.console import SetupError

# What pip prints -> what a person is told. The first group is the name.
STEPS = [
    (re.compile(r"Collecting (\S+)"), "looking up {0}"),
    (re.compile(r"\s*Downloading (\S+/)?([\w.]+)-\S+ (\([\d.]+ \w+\))"), "downloading {1} {2}"),
    (re.compile(r"\s*Using cached ([\w.]+)-"), "found {0} in pip's cache"),
    (re.compile(r"Installing collected packages: (.+)"), "unpacking {count} packages"),
    (re.compile(r"Preparing (.+)"), "building labkit's own entry"),
]
PROGRESS = re.compile(r"Progress (\d+) of (\d+)")

# What pip prints when it gives up -> the reason.
REASONS = [
    (r"No space left on device|Errno 28|WinError 112", "the disk is full"),
    (
        r"name resolution|NewConnectionError|Max retries|timed out|Connection (?:refused|reset)"
        r"|getaddrinfo failed|Network is unreachable|ProxyError",
        "the package index doesn't answer. Is the network up? A proxy is read from HTTPS_PROXY",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError",
        "the index's certificate isn't trusted. Behind a company proxy, PIP_CERT names its "
        "certificate file",
    ),
    (
        r"No matching distribution found for (\S+)",
        "no index offers {0} for this Python and platform",
    ),
    (r"DO NOT MATCH THE HASHES", "a download was damaged on the way"),
    (r"Permission denied|WinError (?:5|32)", "a file is in use or isn't ours to write"),
]


def told(line: str, about: str = "") -> str | None:
    """What a line of pip's output means to somebody who waits; None: nothing new."""
    for pattern, words in STEPS:
        if match := pattern.match(line):
            names = match.groups()
            return words.format(*names, count=len((names[0] or "").split(",")))
    if (match := PROGRESS.match(line)) and "(" in about:
        done, total = (int(group) / 1e6 for group in match.groups())
        return f"{about.split(' (')[0]} ({done:.0f} of {total:.0f} MB)"
    return None


def why(output: str) -> str:
    """The reason of a failure, from the end of pip's output."""
    for pattern, words in REASONS:
        if match := re.search(pattern, output):
            return words.format(*match.groups())
    errors = [line for line in output.splitlines() if line.startswith("ERROR:")]
    return errors[0].removeprefix("ERROR: ") if errors else "pip stopped without saying why"


def pip(
    python: Path,
    arguments: list[str],
    *,
    env: dict[str, str],
    cwd: Path,
    log: Path,
    waiting: Callable[[str], None],
    what: str,
    command: str,
) -> None:
    """Runs `python -m pip …`; the whole of its output goes to `log`.

    Raises SetupError with `what`, the reason and the `command` to try.
    """
    full = [str(python), "-m", "pip", "--no-input", "--disable-pip-version-check", *arguments]
    last: deque[str] = deque(maxlen=60)
    about = ""
    with open(log, "a", encoding="utf-8") as kept:
        kept.write(f"$ {' '.join(full)}\n")
        with subprocess.Popen(
            full,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        ) as process:
            for line in process.stdout:
                if news := told(line, about):
                    about = news
                    waiting(news)
                if not PROGRESS.match(line):
                    kept.write(line)
                    last.append(line)
    if process.returncode != 0:
        raise SetupError(what, f"{why(''.join(last))}\n     (all of pip's words: {log})", command)
