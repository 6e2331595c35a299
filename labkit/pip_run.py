"""Runs pip, tells what it waits for, and says in one sentence why it failed."""

import re
from collections import deque
from collections.abc import Callable
from pathlib import Path

from labkit import environment
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


def pip_version(venv: Path | None = None) -> tuple[int, int]:
    """Of the pip inside an environment, as far as the name of its folder tells."""
    for folder in environment.site_packages(venv):
        for info in folder.glob("pip-*.dist-info"):
            major, minor = info.name.removeprefix("pip-").split(".")[:2]
            return int(major), int(minor)
    return 0, 0


def pip(
    arguments: list[str],
    waiting: Callable[[str], None],
    what: str,
    command: str,
    venv: Path | None = None,
) -> None:
    """Runs pip inside `.venv`, or another `venv`; all of its output goes to setup.log in there.

    Raises SetupError: `what` can't be installed, the reason, and the `command` to try.
    """
    full = [str(environment.venv_python(venv)), "-m", "pip", *arguments, "--no-input"]
    full += ["--progress-bar=raw"] if pip_version(venv) >= (24, 1) else []
    log = (venv or environment.venv_dir()) / "setup.log"
    last: deque[str] = deque(maxlen=60)
    about = ""
    with (
        open(log, "a", encoding="utf-8", errors="replace") as kept,
        environment.start(full) as process,
    ):
        kept.write(f"$ {' '.join(full)}\n")
        for line in process.stdout:
            if news := told(line, about):
                about = news
                waiting(news)
            if not PROGRESS.match(line):
                kept.write(line)
                last.append(line)
    if process.returncode != 0:
        reason = f"{why(''.join(last))}\n     (pip's own words: {log})"
        raise SetupError(f"{what} can't be installed", reason, command)
