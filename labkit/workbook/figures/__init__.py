"""The figures of the notebooks, one file a topic: pure functions from data to a `Picture`.

The style is that of `labkit.workbook.plots`; nothing here measures or runs anything.
"""
