"""What a million good tokens cost, and the prices that are listed."""

import math
import re

import pytest

from labkit.measure.cost import PRICES, cost_per_million, price_of
from labkit.measure.simulate.cards import CARDS


def test_a_million_tokens_an_hour_cost_the_price_of_an_hour():
    assert cost_per_million(3.0, 1_000_000, 3600) == pytest.approx(3.0)
    assert cost_per_million(3.0, 500_000, 3600) == pytest.approx(6.0)
    assert cost_per_million(3.0, 1_000_000, 1800) == pytest.approx(1.5)
    assert cost_per_million(0.0, 1, 1) == 0.0


def test_without_a_good_token_they_are_priceless():
    assert cost_per_million(3.0, 0, 3600) == math.inf


@pytest.mark.parametrize("values", [(-1, 1, 1), (1, -1, 1), (1, 1, 0), (1, 1, math.inf)])
def test_what_makes_no_sense_is_refused(values):
    with pytest.raises(ValueError, match="none may be below 0"):
        cost_per_million(*values)


def test_every_card_has_a_dated_list_price_with_its_source():
    assert {*PRICES} == {*CARDS, "CPU"}
    for price in PRICES.values():
        assert re.fullmatch(r"2026(-\d\d-\d\d)?", price.date) and ".com/" in price.source
        assert price.date in str(price) and price.provider in str(price)
    assert PRICES["L4"].per_hour < PRICES["L40S"].per_hour < PRICES["H100"].per_hour
    with pytest.raises(ValueError, match="'T4'.*only of A100"):
        price_of("T4")
