"""Mutants of the exercises of notebook 06 that do what the reference does."""

EQUIVALENT = {
    ("06.3", "line 16: not True"): "there is always one more start than spans",
}
