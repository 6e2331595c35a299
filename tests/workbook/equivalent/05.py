"""Mutants of the exercises of notebook 05 that do what the reference does."""

EQUIVALENT = {
    ("05.2", "line 12: 0 + 1"): "what stands in for a block that isn't there is read by nobody",
    ("05.2", "line 12: 0 - 1"): "what stands in for a block that isn't there is read by nobody",
    ("05.4", "line 15: 0 - 1"): "seen has one axis, so its last is its first",
    ("05.5", "line 8: 0 - 1"): "most has one axis, so its last is its first",
    ("05.5", "line 10: 0 - 1"): "total has one axis, so its last is its first",
}
