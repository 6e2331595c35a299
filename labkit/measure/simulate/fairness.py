"""How far apart the service of tenants gets, while all of them wait for more.

Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024): with their virtual token
counter the difference stays within 2 * max(w_p * L_input, w_q * M), whatever arrives.
"""

from itertools import combinations

INPUT_WEIGHT, OUTPUT_WEIGHT = 1, 2  # w_p and w_q: a generated token counts twice, as there
MOST_TENANTS = 32  # their pairs are looked at in every step


class Service:
    """Of one replica: what each tenant got, and who waits.

    Prompts count as they are admitted, output as it is generated, as the counters of that paper.
    `largest` is the largest difference between what two tenants got in any interval in which
    both had somebody in line all the time.
    """

    def __init__(self):
        self.total: dict[str, int] = {}
        self.num_waiting: dict[str, int] = {}
        self.spans: dict[tuple[str, str], tuple[int, int]] = {}  # least, most of the difference
        self.largest = 0

    def waits(self, tenant: str, more: int) -> None:
        self.num_waiting[tenant] = self.num_waiting.get(tenant, 0) + more

    def serve(self, tenant: str, num_prompt_tokens: int, num_output_tokens: int) -> None:
        got = INPUT_WEIGHT * num_prompt_tokens + OUTPUT_WEIGHT * num_output_tokens
        self.total[tenant] = self.total.get(tenant, 0) + got

    def look(self) -> None:
        """Compares all pairs that are backlogged now; to be called when anything has changed."""
        backlogged = sorted(tenant for tenant, count in self.num_waiting.items() if count)
        if len(backlogged) < 2:
            if self.spans:
                self.spans = {}
            return
        spans = {}
        for pair in combinations(backlogged, 2):
            ahead = self.total.get(pair[0], 0) - self.total.get(pair[1], 0)
            least, most = self.spans.get(pair, (ahead, ahead))
            spans[pair] = least, most = min(least, ahead), max(most, ahead)
            self.largest = max(self.largest, most - least)
        self.spans = spans


def bound(longest_prompt: int, kv_tokens: int) -> int:
    """The paper's bound. `kv_tokens` is M, the most tokens that a running batch can hold."""
    return 2 * max(INPUT_WEIGHT * longest_prompt, OUTPUT_WEIGHT * kv_tokens)
