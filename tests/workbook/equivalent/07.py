"""Mutants of the exercises of notebook 07 that do what the reference does."""

SHORT_CUT = "a short cut: with no stop strings no place is found, and all text is returned"
EQUIVALENT = {
    ("07.1", "line 1: dropped 'if not self.stop:\\n    return text'"): SHORT_CUT,
    ("07.1", "line 12: dropped 'return text'"): SHORT_CUT,
}
