"""Break your neighbour's scheduler: a small workload that hurts more than its size.

Any server can be drowned. So an attack is limited, and compared with a yardstick: as many
requests with as many tokens that come evenly and ask for nothing special. What the classes lose
beyond that is the doing of the attack, and a weakness of the configuration.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from labkit.measure.capstone.configuration import Configuration
from labkit.measure.capstone.scoring import Score, score
from labkit.measure.capstone.workloads import Workload
from labkit.measure.simulate.requests import Arrival

ATTACKER = "attacker"
MOST_REQUESTS = 120  # 6% of what else arrives
MOST_TOKENS = 150_000  # prompts and answers: 5% of what else arrives
MOST_IN_WINDOW, WINDOW_S = 40, 5.0  # 8 a second, where the classes send 54
LONGEST_PROMPT, LONGEST_ANSWER = 8192, 1024
PLAIN_PRIORITY = 1
LEAST_DAMAGE = 0.01  # a shift of the yardstick by a fraction of a second does 0.006
LARGEST = 1e9  # of a priority or a deadline


class AttackError(ValueError):
    """A workload beyond the limits of an attack; the message names the value and the limit."""


@dataclass(frozen=True)
class Attack:
    """What came of one: the same configuration alone, under the yardstick, and attacked."""

    alone: Score
    plain: Score
    attacked: Score

    @property
    def damage(self) -> dict[str, float]:
        """Class → the share of its requests that lost their SLO to the attack, beyond what they
        lose to the yardstick. Below 0: the yardstick is worse."""
        return {name: met - self.attacked.met[name] for name, met in self.plain.met.items()}

    @property
    def broken(self) -> list[str]:
        """The classes whose promise is kept under the yardstick, and not under attack.

        Where a promise is kept by a hair, any change of the arrivals may break it; so more than
        `LEAST_DAMAGE` is needed too.
        """
        pairs = zip(self.plain.classes, self.attacked.classes, strict=True)
        lost = [plain.name for plain, hit in pairs if plain.is_kept and not hit.is_kept]
        return [name for name in lost if self.damage[name] > LEAST_DAMAGE]


def attack(
    configuration: Configuration, workload: Workload, arrivals: Iterable[Arrival]
) -> Attack:
    """Sends `arrivals` along with the workload, and compares with the yardstick.

    Their tenant is "attacker", whatever they say; priorities and deadlines are their own, since a
    client says these too. Their tokens are good for nobody. Raises AttackError.
    """
    arrivals = list(arrivals)
    for number, one in enumerate(arrivals):
        check_types(number, one)
    in_order = sorted(arrivals, key=lambda one: one.time)
    arrivals = [
        one._replace(tenant=ATTACKER, request_id=f"attack-{number}")
        for number, one in enumerate(in_order)
    ]
    check(arrivals, workload.seconds)
    return Attack(
        score(configuration, workload),
        score(configuration, with_more(workload, yardstick(arrivals, workload.seconds))),
        score(configuration, with_more(workload, arrivals)),
    )


def with_more(workload: Workload, more: Sequence[Arrival]) -> Workload:
    every = tuple(sorted((*workload.arrivals, *more), key=lambda arrival: arrival.time))
    return Workload(workload.name, every, workload.seconds, workload.classes)


def yardstick(arrivals: Sequence[Arrival], seconds: float) -> list[Arrival]:
    """As many requests and tokens, all alike, evenly over the time, of middling priority."""
    count = len(arrivals)
    prompts = spread(sum(one.num_prompt_tokens for one in arrivals), count)
    outputs = spread(sum(one.num_output_tokens for one in arrivals), count)
    pairs = zip(prompts, outputs, strict=True)
    return [
        Arrival((number + 0.5) * seconds / count, prompt, output, PLAIN_PRIORITY, ATTACKER)
        for number, (prompt, output) in enumerate(pairs)
    ]


def spread(total: int, count: int) -> list[int]:
    """`count` whole numbers that differ by at most 1, and add up to `total`."""
    return [total * (i + 1) // count - total * i // count for i in range(count)]


def check_types(number: int, one: Arrival) -> None:
    """Raises AttackError for a request that no client could send."""
    for name, is_fine, wanted in (
        ("time", is_number(one.time), "a number of seconds is"),
        ("num_prompt_tokens", is_count(one.num_prompt_tokens), "a whole number from 1 on is"),
        ("num_output_tokens", is_count(one.num_output_tokens), "a whole number from 1 on is"),
        (
            "priority", type(one.priority) is int and is_number(one.priority),
            f"a whole number within {LARGEST:.0e} is",
        ),
        (
            "deadline", one.deadline is None or is_number(one.deadline),
            f"None or seconds within {LARGEST:.0e} are",
        ),
    ):  # fmt: skip
        if not is_fine:
            value = repr(getattr(one, name))[:40]
            raise AttackError(f"request {number}: {name} is {value}; {wanted} needed")


def is_count(value) -> bool:
    return type(value) is int and value >= 1


def is_number(value) -> bool:
    """Whether the simulator can count with it; NaN is never within the limit."""
    return isinstance(value, int | float) and abs(value) <= LARGEST


def check(arrivals: Sequence[Arrival], seconds: float) -> None:
    """Raises AttackError for what is no attack but overload, or nothing."""
    tokens = sum(one.num_prompt_tokens + one.num_output_tokens for one in arrivals)
    at_most("requests", len(arrivals), MOST_REQUESTS)
    at_most("tokens of prompts and answers together", tokens, MOST_TOKENS)
    if not arrivals:
        raise AttackError("0 requests; an attack needs at least one")
    for number, one in enumerate(arrivals):
        at_most("prompt tokens of one request", one.num_prompt_tokens, LONGEST_PROMPT)
        at_most("output tokens of one request", one.num_output_tokens, LONGEST_ANSWER)
        if not 0 <= one.time <= seconds:
            raise AttackError(f"a request arrives at {one.time:g} s; 0 to {seconds:g} s is needed")
        if number >= MOST_IN_WINDOW:
            window = one.time - arrivals[number - MOST_IN_WINDOW].time
            if window < WINDOW_S:
                raise AttackError(
                    f"{MOST_IN_WINDOW + 1} requests arrive within {window:.2f} s of "
                    f"{one.time:.2f} s; at most {MOST_IN_WINDOW} may in {WINDOW_S:g} s"
                )


def at_most(what: str, value: int, most: int) -> None:
    if value > most:
        raise AttackError(f"{value:,} {what}; an attack may have {most:,}, send less")


def bursts(
    prompt: int, output: int, count: int, every: float, deadline: float | None = None
) -> list[Arrival]:
    """`count` equal requests that call themselves most urgent, in bursts of ten at one moment.

    A burst comes every so many seconds, from 1 s on; `deadline` is in seconds from the arrival.
    """
    times = [1.0 + every * (number // 10) for number in range(count)]
    return [
        Arrival(time, prompt, output, -1, ATTACKER, deadline and time + deadline) for time in times
    ]


ATTACKS = {  # two to begin with; which configuration falls to which is worth a prediction
    "long-prompts": bursts(8000, 1, count=18, every=9.0, deadline=3.0),
    "long-answers": bursts(100, 1024, count=120, every=1.3),
}
