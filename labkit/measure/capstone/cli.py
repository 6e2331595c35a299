"""`python3 -m labkit capstone`: options in, tables out, one line when it can't be."""

import json
import sys
from argparse import Namespace

from labkit.console import SetupError
from labkit.environment import again
from labkit.measure import workload as workload_files
from labkit.measure.bench.report import Report
from labkit.measure.capstone import board, options, telling
from labkit.measure.capstone.attacks import ATTACKS, attack
from labkit.measure.capstone.configuration import CHOICES, GREEDY, Configuration, ConfigurationError
from labkit.measure.capstone.scoring import score
from labkit.measure.capstone.workloads import Workload, make_workload
from labkit.measure.simulate.requests import of_workload
from labkit.paths import write_atomic

PROMPT = "capstone> "
USAGE = """\
field=value ... changes the configuration and scores it, e.g.  replicas=3 policy=priority
save NAME writes the last score on the leaderboard, board shows it, reset begins anew, quit ends"""
VALUES = "\n".join(
    f"  {name:24} {', '.join(CHOICES[name]) if name in CHOICES else 'a number'}; "
    f"at first {getattr(Configuration(), name)}"
    for name in options.FIELDS
)


def parse(argv: list[str]) -> Namespace:
    return options.parse(argv, again("capstone"))


def main(argv: list[str]) -> int:
    """Runs one command; returns the exit status: 0, 1 when it failed, 130 after Ctrl-C."""
    chosen = parse(argv)
    out = Report(f"capstone {chosen.command}")
    try:
        made = make_workload(chosen.seed, *options.traces_of(chosen))
        COMMANDS[chosen.command](chosen, made, out)
        out.write(chosen.json)
    except (ValueError, OSError, MemoryError, SetupError) as error:
        told = " ".join(str(error).split()) or type(error).__name__
        print(f"FAIL capstone {chosen.command}: {told}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; nothing more was written.", file=sys.stderr)
        return 130
    return 0


def run_score(chosen: Namespace, made: Workload, out: Report) -> None:
    telling.tell_task(out, made)
    found = score(chosen.configuration, made, chosen.price)
    telling.tell_score(out, found, chosen.price)
    if chosen.write:
        text = json.dumps(chosen.configuration.to_json(), indent=1) + "\n"
        write_atomic(chosen.write, text)
        out.say(f"configuration written: {chosen.write}")
    if chosen.name:
        board.save(chosen.name, found, made)
        out.say()
        telling.tell_board(out, board.leaderboard(made))


def run_board(chosen: Namespace, made: Workload, out: Report) -> None:
    out.say(f"workload  {made.name} ({made.fingerprint}), {board.board_file()}")
    telling.tell_board(out, board.leaderboard(made))


def run_attack(chosen: Namespace, made: Workload, out: Report) -> None:
    if chosen.built_in:
        arrivals, name = ATTACKS[chosen.built_in], chosen.built_in
    else:
        arrivals, name = of_workload(workload_files.read(chosen.workload)), chosen.workload.name
    telling.tell_task(out, made)
    telling.tell_attack(out, name, arrivals, attack(chosen.configuration, made, arrivals))


def run_play(chosen: Namespace, made: Workload, out: Report) -> None:
    telling.tell_task(out, made)
    for name, first in (("default", Configuration()), ("greedy: the fewest that keep up", GREEDY)):
        out.say(f"-- {name}")
        telling.tell_score(out, score(first, made))
        out.say()
    if sys.stdin.isatty():
        out.say(f"{USAGE}\n{VALUES}")
        Player(made, out).loop()
    else:
        out.say(f"next: {again('capstone score --replicas 3 --policy priority')}")


class Player:
    """The game in a terminal: one line, one score."""

    def __init__(self, made: Workload, out: Report):
        self.made, self.out = made, out
        self.configuration, self.last = Configuration(), None

    def loop(self) -> None:
        """Until `quit`, or the end of the input. What is wrong with a line is told, and no more."""
        while True:
            try:
                line = input(PROMPT).strip()
            except EOFError:
                return
            if line in ("quit", "exit", "q"):
                return
            try:
                self.take(line)
            except ValueError as error:
                self.out.say(f"FAIL {error}")

    def take(self, line: str) -> None:
        command, _, rest = line.partition(" ")
        if command == "save":
            if self.last is None:
                raise ConfigurationError("there is no score yet; change something first")
            board.save(rest, self.last, self.made)
        if command in ("save", "board"):
            telling.tell_board(self.out, board.leaderboard(self.made))
        elif command in ("", "help", "?"):
            self.out.say(f"{USAGE}\n{VALUES}")
        else:
            base = Configuration() if command == "reset" else self.configuration
            fields = rest.split() if command == "reset" else line.split()
            self.configuration = options.changed(base, dict(map(assigned, fields)))
            self.last = score(self.configuration, self.made)
            telling.tell_score(self.out, self.last)


def assigned(text: str) -> tuple[str, object]:
    """`field=value` as a pair; a number where it looks like one. ConfigurationError."""
    name, equals, value = text.partition("=")
    name = name.strip("-").replace("-", "_")
    if not equals or name not in options.FIELDS:
        accepted = ", ".join(options.FIELDS)
        raise ConfigurationError(f"{text!r} is no field=value; fields are {accepted}")
    return name, int(value) if value.isdecimal() else value


COMMANDS = {
    "play": run_play, "score": run_score, "leaderboard": run_board, "attack": run_attack
}  # fmt: skip
