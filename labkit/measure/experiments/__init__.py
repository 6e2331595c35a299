"""The experiments of notebooks 02 to 10: what is run and written down, one file a topic.

Each takes an engine, a model or a scheduler and gives numbers; figures of them are drawn by
`labkit.workbook.figures`.
"""
