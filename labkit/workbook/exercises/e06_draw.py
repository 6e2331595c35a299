"""Notebook 06, the next token: `draw`.

The probabilities are given; the numbers drawn were computed with splitmix64 from its paper:

    position      0      1      2      3
    seed 0    0.652  0.166  0.510  0.976
    seed 1    0.368  0.527  0.738  0.692
    seed 3    0.738  0.737  0.138  0.035
"""

from labkit.workbook import drawings
from labkit.workbook.registry import Case, Exercise, Mistake

TOKENS = "tokens of each step"
HALF = (0.5, 0.3, 0.2)  # of tokens 0, 1, 2: numbers below 0.5, below 0.8, the rest


def _request(seed, position=0, **params):
    from types import SimpleNamespace

    from labkit.model.sampling_params import SamplingParams

    return SimpleNamespace(
        sampling=SamplingParams(**params),
        seed=seed,
        prompt_token_ids=[7, 7, 7],
        output_token_ids=[9] * position,
    )


def _tokens(*steps):
    """Each step is a list of rows (probabilities, seed, position, parameters)."""

    def observe(part):
        import torch

        seen = []
        for rows in steps:
            logits = torch.tensor([row[0] for row in rows]).log()
            requests = [_request(seed, place, **dict(*more)) for _, seed, place, *more in rows]
            seen.append(part.draw(logits, requests).tolist())
        return {TOKENS: seen}

    return observe


def _case(name, observe, *expected):
    return Case(
        name,
        observe,
        {TOKENS: list(expected)},
        draw=lambda expected, found: drawings.rows(expected[TOKENS], found.get(TOKENS), TOKENS),
    )


def _row(seed, position=0, probabilities=HALF, **params):
    return (probabilities, seed, position, params)


FOUR = (0.4, 0.3, 0.2, 0.1)

DRAW = Exercise(
    id="06.5",
    module="labkit.model.sampling",
    symbol="draw",
    core=False,
    minutes=25,
    difficulty=2,
    cases=(
        _case("plain", _tokens([_row(0)]), [1]),  # 0.652
        _case("cold", _tokens([_row(0, temperature=0.1)]), [0]),  # 0.994, ...: nearly greedy
        _case("hot", _tokens([_row(3, temperature=100.0)]), [2]),  # thirds: 0.738 is in the last
        _case("each_step", _tokens(*[[_row(0, n)] for n in range(4)]), [1], [0], [1], [2]),
        _case("own_seed", _tokens([_row(3), _row(1), _row(3)]), [1, 0, 1]),  # 0.738, 0.368, 0.738
        _case(
            "other_places",
            _tokens([_row(1), _row(0, 3)], [_row(0, 3), _row(1)], [_row(0, 3)]),
            [0, 2],
            [2, 0],
            [2],
        ),
        _case("again", _tokens([_row(0, 2)], [_row(0, 2)], [_row(0, 1)]), [1], [1], [0]),
        _case(
            "own_temperature",
            _tokens([_row(3), _row(3, temperature=0.1), _row(3, temperature=100.0)]),
            [1, 0, 2],
        ),
        _case("top_k", _tokens([_row(0, 3, top_k=2)]), [1]),  # 0.976 of 0.5 + 0.3
        # At temperature 0.2 the first two have 0.80 and 0.19: top_p 0.75 keeps one, not two.
        _case("cold_then_top_p", _tokens([_row(0, 3, FOUR, temperature=0.2, top_p=0.75)]), [0]),
        # Of the two that top_k keeps the first has 0.57: enough for top_p. Of all four 0.4: not.
        _case("top_k_then_top_p", _tokens([_row(0, 3, FOUR, top_k=2, top_p=0.55)]), [0]),
        _case(
            "own_filter",
            _tokens([_row(0, 3, top_k=1), _row(0, 3), _row(0, 3, top_k=2), _row(0, 3, min_p=0.5)]),
            [0, 2, 1, 1],
        ),
    ),
    mistakes=(
        Mistake(
            "one_generator",
            (
                (
                    "numbers = [uniform(request.seed, len(request.output_token_ids)) "
                    "for request in requests]",
                    "stream = torch.Generator().manual_seed(requests[0].seed)\n"
                    "    numbers = torch.rand(len(requests), generator=stream).tolist()",
                ),
            ),
        ),
        Mistake(
            "row_for_a_seed",
            (
                (
                    "uniform(request.seed, len(request.output_token_ids)) "
                    "for request in requests]",
                    "uniform(row, len(request.output_token_ids)) "
                    "for row, request in enumerate(requests)]",
                ),
            ),
        ),
        Mistake(
            "seed_of_the_first",
            (("uniform(request.seed, len", "uniform(requests[0].seed, len"),),
        ),
        Mistake(
            "same_number_again",
            (("uniform(request.seed, len(request.output_token_ids))", "uniform(request.seed, 0)"),),
        ),
        Mistake(
            "prompt_counted",
            (
                (
                    "len(request.output_token_ids))",
                    "len(request.prompt_token_ids) + len(request.output_token_ids))",
                ),
            ),
        ),
        Mistake(
            "filters_first",
            (
                (
                    "    logits = apply_temperature(logits, "
                    "column([r.sampling.temperature for r in requests], logits))\n",
                    "    logits = logits.clone()\n",
                ),
                (
                    "    numbers = [",
                    "    temperatures = [r.sampling.temperature for r in requests]\n"
                    "    logits = apply_temperature(logits, column(temperatures, logits))\n"
                    "    numbers = [",
                ),
            ),
        ),
        Mistake("filters_reversed", (("in FILTERS:", "in reversed(FILTERS):"),)),
        Mistake(
            "temperature_of_the_first",
            (("[r.sampling.temperature for r", "[requests[0].sampling.temperature for r"),),
        ),
        Mistake(
            "value_of_the_first",
            (("[values[row] for row in rows]", "[values[rows[0]] for row in rows]"),),
        ),
        Mistake("always_greedy", (("return pick(logits, column(numbers, logits))",
                                   "return logits.argmax(dim=-1)"),)),
    ),
)  # fmt: skip

EXERCISES = (DRAW,)
