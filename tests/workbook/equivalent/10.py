"""Mutants of the exercises of notebook 10 that do what the reference does, or never end."""

EQUIVALENT = {}

ENDLESS: set = set()
