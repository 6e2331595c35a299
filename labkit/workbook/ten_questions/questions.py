"""The ten questions: who measures what, and what the numbers say about the group's answer.

A rule looks at the ratio of two numbers that a notebook kept (or at one of them). Where the ratio
lies in its range, it supports or sharpens the group's answer; where not, it may correct it. The
sentences are `report.QUESTION.NAME.yes` and `.no` of the catalogue.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

SUPPORTS, SHARPENS, CORRECTS, OPEN = "supports", "sharpens", "corrects", "open"


@dataclass(frozen=True)
class Rule:
    """The ratio of number `a` to number `b` of `notebook`, and the range in which it holds."""

    name: str
    notebook: str
    a: str
    b: str | None = None
    least: float = -math.inf
    most: float = math.inf
    holds: str = SUPPORTS
    fails: str | None = CORRECTS  # None: nothing is said then
    also: tuple[str, ...] = ()  # more numbers of the notebook for the sentence: {c}, {d}

    def needs(self) -> list[str]:
        """Names of all numbers that it looks at."""
        return [name for name in (self.a, self.b, *self.also) if name]

    def judge(self, numbers: Mapping[str, float]) -> "Finding | None":
        """What the numbers of its notebook say; None when one is missing."""
        if any(name not in numbers for name in self.needs()):
            return None
        over = numbers[self.b] if self.b else 1.0
        ratio = numbers[self.a] / over if over else math.inf if numbers[self.a] > 0 else 1.0
        holds = self.least <= ratio <= self.most
        says = self.holds if holds else self.fails
        values = dict(zip("abcd", (numbers[name] for name in self.needs()), strict=False))
        return Finding(self, says, holds, values | {"ratio": ratio}) if says else None


@dataclass(frozen=True)
class Finding:
    """What one rule found; `says` is SUPPORTS, SHARPENS or CORRECTS."""

    rule: Rule
    says: str
    holds: bool
    values: dict[str, float]

    @property
    def key(self) -> str:
        """The end of its sentence's key."""
        return f"{self.rule.name}.{'yes' if self.holds else 'no'}"


@dataclass(frozen=True)
class Question:
    """One of the ten: its notebooks, its predictions, its rules."""

    number: int
    notebooks: tuple[str, ...]
    predictions: tuple[str, ...]
    rules: tuple[Rule, ...] = field(repr=False)

    def findings(self, numbers: Mapping[str, Mapping[str, float]]) -> list[Finding]:
        """What `numbers`, by notebook and name, say."""
        found = [rule.judge(numbers.get(rule.notebook, {})) for rule in self.rules]
        return [one for one in found if one]


def verdict(findings: Iterable[Finding]) -> str:
    """One contradiction corrects the answer; else one refinement sharpens it."""
    said = {finding.says for finding in findings}
    return next((one for one in (CORRECTS, SHARPENS, SUPPORTS) if one in said), OPEN)


IN_ONE, LARGE = "process_over_in_process_1_stream_cpu", "process_over_in_process_64_streams_paced"
WAY, WAY_OUT = "delivery_us_in_process_1_stream", "delivery_us_process_1_stream"
SPLIT, SPLIT_2 = "splitting_gains_64_streams_paced", "splitting_gains_2_streams_paced"
BYTES = "bytes_over_the_least_"
FIRST, E2E = "first_text_s_", "E2E_s_"
CHAT = "_chat_ttft_p99_s"

QUESTIONS = (
    Question(
        1,
        ("07",),
        ("07.ipc_us", "07.process_one_stream", "07.process_many_streams", "07.error_s"),
        (
            Rule("small", "07", IN_ONE, most=1.1),
            Rule("large", "07", LARGE, least=1.1),
            Rule("price", "07", WAY_OUT, WAY, 1.2, holds=SHARPENS, also=("ipc_us_per_token",)),
            Rule("alone", "07", "error_after_kill_s", most=2.0, also=("ready_after_kill_s",)),
        ),
    ),
    Question(
        2,
        ("03", "05", "07"),
        ("03.flops", "03.split", "05.bytes", "05.split", "07.busy_small_batch"),
        (
            Rule("hides", "03", "split_gain_here", most=1.3, also=("decode_percent_of_flops",)),
            Rule(
                "bytes", "05", BYTES + "gathered", BYTES + "a_program_a_kv_head", 1.2,
                holds=SHARPENS, fails=None,
            ),
            Rule(
                "causes", "07", "tokens_per_s_baseline", "tokens_per_s_small-batch", 1.2,
                also=("tokens_per_s_kv", "tokens_per_s_tokenizer"),
            ),
            Rule("streams", "07", SPLIT, SPLIT_2, 1.1, holds=SHARPENS, fails=SUPPORTS),
        ),
    ),
    Question(
        3,
        ("02", "04", "06"),
        ("02.wasted", "02.behind", "02.by_tokens", "04.unused", "04.at_once", "06.budget"),
        (
            Rule("wasted", "02", "wasted_slots_percent", least=20, holds=SHARPENS),
            Rule("tokens", "02", "tokens_per_s_by_tokens", "tokens_per_s_batches_of_4", 1.1),
            Rule(
                "length", "04", "requests_at_once_of_40_tokens", "requests_at_once_of_1000_tokens",
                2, fails=None,
            ),
            Rule(
                "step", "06", "most_tokens_in_a_step_of_4_requests",
                "fewest_tokens_in_a_step_of_4_requests", 2, fails=None,
            ),
            Rule(
                "budget", "06", "longest_gap_budget_512_ms", "longest_gap_budget_16_ms", 1.2,
                holds=SHARPENS, fails=None,
                also=("tokens_per_s_budget_512", "tokens_per_s_budget_16"),
            ),
        ),
    ),
    Question(
        4,
        ("02", "04"),
        ("02.throughput", "02.best_batch", "04.throughput"),
        (
            Rule("sweep", "02", "throughput_16_over_1_no_cache", most=12),
            Rule(
                "goodput", "02", "goodput_best", "goodput_16", 1.05, holds=SHARPENS,
                also=("best_batch_under_the_slo",),
            ),
            Rule(
                "blocks", "04", "tokens_per_s_blocks", "tokens_per_s_rows", 1.05, holds=SHARPENS,
                also=("batch_in_blocks", "batch_in_rows"),
            ),
        ),
    ),
    Question(
        5,
        ("01",),
        ("01.first_text",),
        (
            Rule("first", "01", "first_text_unstreamed_s", "first_text_streamed_s", 1.5),
            Rule(
                "last", "01", "last_text_streamed_s", "last_text_unstreamed_s", 0.7, 1.4,
                holds=SHARPENS,
            ),
        ),
    ),
    Question(
        6,
        ("01", "03"),
        ("01.itl_growth", "01.work", "03.itl", "03.batch"),
        (
            Rule("speed", "01", "tokens_per_s_with_cache", "tokens_per_s_without_cache", 1.2),
            Rule(
                "work", "01", "tokens_computed_without_cache", "tokens_computed_with_cache", 2,
                fails=None,
            ),
            Rule(
                "shape", "03", "itl_growth_without_cache", "itl_growth_with_cache", 1.2,
                holds=SHARPENS,
            ),
            Rule(
                "decision", "03", "batch_16_gain_with_cache", "batch_16_gain_without_cache", 1.2,
                holds=SHARPENS,
            ),
        ),
    ),
    Question(
        7,
        ("06",),
        ("06.four_ways",),
        (
            Rule("streaming", "06", FIRST + "static_at_the_end", FIRST + "static_streamed", 1.1),
            Rule("batching", "06", E2E + "static_streamed", E2E + "continuous_streamed", 1.1),
            Rule(
                "both", "06", FIRST + "static_at_the_end", FIRST + "continuous_streamed", 1.2,
                fails=None,
            ),
        ),
    ),
    Question(
        8,
        ("07",),
        ("07.tokens_for_nobody",),
        (
            Rule(
                "nobody", "07", "tokens_for_nobody_running", least=1,
                also=("tokens_for_nobody_waiting", "blocks_held_for_nobody"),
            ),
            Rule(
                "told", "07", "tokens_for_nobody_when_told", most=1,
                also=("blocks_after_both_left",),
            ),
        ),
    ),
    Question(
        9,
        ("06", "08"),
        ("06.head_of_line", "06.stall", "08.behind"),
        (
            Rule(
                "line", "06", "ttft_of_short_behind_long_naive_s",
                "ttft_of_short_behind_long_continuous_s", 1.5,
            ),
            Rule(
                "unit", "06", "longest_gap_budget_1024_ms", "longest_gap_budget_64_ms", 1.2,
                holds=SHARPENS,
            ),
            Rule(
                "slot", "08", "chat_steps_behind_a_long_one", "chat_steps_with_preemption", 2,
                holds=SHARPENS,
            ),
        ),
    ),
    Question(
        10,
        ("08",),
        ("08.again", "08.way_back", "08.saves", "08.rate"),
        (
            Rule("heavy", "08", "heavy_fcfs" + CHAT, "heavy_priority" + CHAT, 1.5),
            Rule(
                "light", "08", "light_fcfs" + CHAT, "light_priority" + CHAT, 0.5, 2,
                holds=SHARPENS, fails=SUPPORTS,
            ),
            Rule(
                "price", "08", "heavy_priority_steps", "heavy_fcfs_steps", 1.001, holds=SHARPENS,
                fails=None,
            ),
        ),
    ),
)  # fmt: skip
