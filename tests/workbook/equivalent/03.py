"""Mutants of the exercises of notebook 03 that do what the reference does."""

EQUIVALENT = {
    ("03.2", "line 12: 0 - 1"): "with start 0 the mask is the causal one, only said twice",
    ("03.2", "line 16: 0 - 1"): "there is one sequence, so the last of the batch is the first",
    ("03.5", "line 20: 0 + 1"): "no token fits in one byte either",
}
