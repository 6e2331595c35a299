"""What one real engine on this machine can take: goodput over the load, for notebook 10.

Requests arrive at random, as they do from many people who don't know of each other. At every
rate they come in the same pattern, only faster, so that two trials differ in nothing else.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from labkit import rungs
from labkit.engine.request import Request
from labkit.measure.bench.drive import Run, drive, percentile
from labkit.measure.slo import SLO, goodput

PROMPTS = (
    "What is a good name for a quiet boat?",
    "Explain in one sentence why the sea is salty.",
    "Give me three words that rhyme with light.",
    "Who looks after a lighthouse at night?",
)
OUTPUT_TOKENS = 12
NUM_ALONE = 5  # requests to see what an idle engine does


@dataclass(frozen=True)
class Offered:
    """One load on an engine; `rate` is of arrivals, a second, the others what came of it."""

    rate: float
    goodput: float  # requests a second that met the SLO
    throughput: float  # requests a second that were answered
    attainment: float  # share of all requests that met the SLO
    ttft_p50_s: float
    ttft_mean_s: float
    tpot_p50_s: float
    seconds: float  # that the trial took


def make_engine(loaded, **limits):
    """The continuous rung, without a prefix cache; some tokens are computed first, since much is
    prepared only once."""
    engine = rungs.make("continuous", loaded, **{"prefix_caching": False, **limits})
    drive(engine, requests(loaded, 8, 1000.0))
    return engine


def requests(loaded, count: int, rate: float, seed: int = 0) -> list[Request]:
    """`count` chat requests; the gaps between them are exponential, `1 / rate` seconds on average.

    The first arrives at 0. The same seed gives the same pattern at each rate. So few gaps drawn at
    random would add up to another rate; they are stretched until their mean is what was asked.
    """
    draw, made = random.Random(seed), []
    gaps = [draw.expovariate(1.0) for _ in range(count - 1)]
    stretch = len(gaps) / sum(gaps) / rate if gaps else 0.0
    for number in range(count):
        ids = loaded.encode_chat(PROMPTS[number % len(PROMPTS)])
        name = f"chat-{number}"
        arrival = stretch * sum(gaps[:number])
        made.append(Request(name, ids, OUTPUT_TOKENS, ignore_eos=True, arrival=arrival))
    return made


def alone(engine, loaded) -> SLO:
    """TTFT and TPOT of a request that has the engine to itself, as the SLO that an idle engine just
    keeps: the least of `NUM_ALONE`, since whatever else runs on the machine can only add to it."""
    latencies = []
    for _ in range(NUM_ALONE):
        latencies += drive(engine, requests(loaded, 1, 1.0)).latencies.values()
    return SLO(ttft=min(one.ttft for one in latencies), tpot=min(one.tpot for one in latencies))


def fastest(engine, loaded, count: int = 24) -> float:
    """Requests a second when all `count` are there at once: more than that can't be answered."""
    return count / drive(engine, requests(loaded, count, 1e6)).seconds


def offer(engine, loaded, rate: float, slo: SLO, count: int = 20, seed: int = 0) -> Offered:
    """Puts one load on the engine, and sees what becomes of it."""
    return judged(drive(engine, requests(loaded, count, rate, seed)), rate, slo)


def judged(run: Run, rate: float, slo: SLO) -> Offered:
    """A run as `Offered`; a request without a token has not met the SLO."""
    answered = list(run.latencies.values())
    ttft = [one.ttft for one in answered]
    num_met = sum(slo.is_met(one) for one in answered)
    return Offered(
        rate,
        goodput(answered, slo, run.seconds),
        len(answered) / run.seconds,
        num_met / len(run.arrivals),
        percentile(ttft, 50),
        sum(ttft) / len(ttft),
        percentile([one.tpot for one in answered], 50),
        run.seconds,
    )


def knee(points: Sequence[Offered], attainment: float = 0.9) -> float:
    """The highest rate of a sweep up to which every load met the SLO; 0.0 when the first missed."""
    best = 0.0
    for point in sorted(points, key=lambda one: one.rate):
        if point.attainment < attainment:
            break
        best = point.rate
    return best
