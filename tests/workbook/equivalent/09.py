"""Mutants of the exercises of notebook 09 that do what the reference does."""

FAST_PATH = "the best of all, when it is healthy, is the best of the healthy: found the slow way"

EQUIVALENT = {
    (
        "09.5",
        "line 1: dropped 'if index is not None and replicas[index].healthy:\\n    return index'",
    ): FAST_PATH,
    ("09.5", "line 21: dropped 'return index'"): FAST_PATH,
}
