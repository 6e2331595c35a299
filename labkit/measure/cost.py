"""What serving costs: money for a million tokens that came in time, and dated list prices."""

import math
from dataclasses import dataclass


def cost_per_million(price_per_hour: float, good_tokens: int, seconds: float) -> float:
    """What a million good tokens cost, in the currency of `price_per_hour`.

    `price_per_hour` is of everything that was rented, idle or not: with three replicas it is three
    times a card's. `good_tokens` are output tokens of the requests that met their SLO, counted
    over `seconds` of that rent. Tokens that came too late are paid for like all others, and
    count for nothing.

    Infinite when no token is good. ValueError when a value is below 0, or `seconds` is 0 or
    infinite.
    """
    if price_per_hour < 0 or good_tokens < 0 or not 0 < seconds < math.inf:
        raise ValueError(
            f"price_per_hour is {price_per_hour}, good_tokens {good_tokens}, seconds {seconds}; "
            "none may be below 0, and seconds must be above it"
        )
    if good_tokens == 0:
        return math.inf
    tokens_per_hour = good_tokens * 3600 / seconds
    return 1e6 * price_per_hour / tokens_per_hour


@dataclass(frozen=True)
class Price:
    """A list price on demand, in US dollars an hour, as its source had it on its date."""

    per_hour: float  # of one card, or of the whole instance where it has none
    provider: str
    instance: str
    date: str  # when the copy was made; "2026" where its day is not known
    source: str

    def __str__(self) -> str:
        return f"{self.per_hour:g} USD an hour, list price of {self.provider}, {self.date}"


EC2 = "AWS EC2 on demand, us-east-1"
PAGE = "aws.amazon.com/ec2/pricing/on-demand, as copied by "
COPIES = PAGE + "several public price tables"
RECEIPTS = PAGE + "github.com/datareceipts/data-receipts, 109-gpu-pricing"
DSTACK = PAGE + "github.com/dstackai/dstack, pull request 4110"

# List prices of one provider, so that they compare; none is a quotation. For an H100 others asked
# between 2.69 (RunPod, community) and 12.29 (Azure) in 2026-11, and who signs for a year pays less:
# give your own with --price.
PRICES = {
    "A100": Price(3.43, EC2, "p4de.24xlarge / 8", "2026-11-09", RECEIPTS),
    "L4": Price(0.805, EC2, "g6.xlarge", "2026", COPIES),
    "L40S": Price(1.861, EC2, "g6e.xlarge", "2026", COPIES),
    "H100": Price(6.88, EC2, "p5.48xlarge / 8", "2026-11-09", RECEIPTS),
    "H200": Price(7.912, EC2, "p5en.48xlarge / 8", "2026-08-06", DSTACK),
    "B200": Price(14.24, EC2, "p6-b200.48xlarge / 8", "2026", COPIES),
    "CPU": Price(0.714, EC2, "c7i.4xlarge, 16 vCPU", "2026", COPIES),
}


def price_of(card: str) -> Price:
    """ValueError for a card without a list price."""
    if card not in PRICES:
        raise ValueError(
            f"there is no list price of {card!r}, only of {', '.join(PRICES)}; give one an hour"
        )
    return PRICES[card]
