"""The exercises, one module a notebook: e00, e01, ... Each holds `EXERCISES`.

Their sentences (titles, hints, invariants, mistakes) stand in `labkit/workbook/messages/`.
"""
