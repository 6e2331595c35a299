"""The exercises: modules named eNN after their notebook, each with a tuple `EXERCISES`.

Their sentences (titles, hints, invariants, mistakes) stand in `labkit/workbook/messages/`.
"""
