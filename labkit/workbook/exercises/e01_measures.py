"""Notebook 01, what is measured: `latency` and `token_forwards`."""

from labkit.workbook.registry import Case, Exercise, Mistake


def _times(arrival, token_times):
    def observe(part):
        found = part.latency(arrival, token_times)
        return {
            "ttft": found.ttft,
            "itl": list(found.itl) if isinstance(found.itl, list | tuple) else repr(found.itl),
            "tpot": found.tpot,
            "e2e": found.e2e,
        }

    return observe


def _no_token(part):
    try:
        return repr(part.latency(10.0, []))
    except ValueError:
        return "ValueError"


def _felt(ttft, itl, tpot, e2e):
    return {"ttft": ttft, "itl": itl, "tpot": tpot, "e2e": e2e}


LATENCY = Exercise(
    id="01.4",
    module="labkit.measure.metrics",
    symbol="latency",
    core=False,
    minutes=15,
    difficulty=1,
    cases=(
        Case("one_token", _times(10.0, [10.5]), _felt(0.5, [], None, 0.5)),
        Case("two_tokens", _times(10.0, [10.5, 10.75]), _felt(0.5, [0.25], 0.25, 0.75)),
        Case(
            "uneven_gaps",
            _times(8.0, [10.0, 10.25, 11.0]),
            _felt(2.0, [0.25, 0.75], 0.5, 3.0),
        ),
        Case("no_token", _no_token, "ValueError"),
    ),
    mistakes=(
        Mistake(
            "arrival_forgotten", (("ttft = token_times[0] - arrival", "ttft = token_times[0]"),)
        ),
        Mistake("tpot_over_all", (("/ len(itl)", "/ len(token_times)"),)),
        Mistake("tpot_with_ttft", (("(e2e - ttft) / len(itl)", "e2e / len(token_times)"),)),
        Mistake(
            "ttft_among_itl",
            (("pairwise(token_times)", "pairwise([arrival, *token_times])"),),
        ),
        Mistake(
            "e2e_from_first_token",
            (("token_times[-1] - arrival", "token_times[-1] - token_times[0]"),),
        ),
        Mistake("one_token_divides_by_zero", ((" if itl else None", ""),)),
    ),
)


def _count(prompt, output, use_cache):
    def observe(part):
        found = part.token_forwards(prompt, output, use_cache)
        return found if isinstance(found, int) else f"{found!r}, a {type(found).__name__}"

    return observe


FORWARDS = Exercise(
    id="01.5",
    module="labkit.measure.work",
    symbol="token_forwards",
    core=False,
    minutes=10,
    difficulty=1,
    cases=(
        Case("one_output", _count(4, 1, False), 4),
        Case("no_cache", _count(4, 3, False), 4 + 5 + 6),
        Case("cache", _count(4, 3, True), 4 + 1 + 1),
        Case("nothing", _count(4, 0, True), 0),
        Case("nothing", _count(4, 0, False), 0),
        Case("long", _count(100, 200, False), 39_900),  # 200*100 + (0 + 1 + ... + 199)
    ),
    mistakes=(
        Mistake("passes_counted", (("num_prompt_tokens + done for", "1 for"),)),
        Mistake("last_fed_back", (("(num_output_tokens - 1)", "num_output_tokens"),)),
        Mistake(
            "one_token_late",
            (("range(num_output_tokens)", "range(1, num_output_tokens + 1)"),),
        ),
        Mistake("prompt_forgotten", (("num_prompt_tokens + done", "done + 1"),)),
        Mistake(
            "prompt_every_step",
            (
                (
                    "num_prompt_tokens + (num_output_tokens - 1)",
                    "num_prompt_tokens * num_output_tokens",
                ),
            ),
        ),
    ),
)

EXERCISES = (LATENCY, FORWARDS)
