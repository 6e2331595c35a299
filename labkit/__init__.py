"""labkit: a small LLM server that is read, cut into exercises and run.

Importing this package loads nothing but itself; torch comes with `labkit.model`.
"""

__version__ = "0.1.0"
