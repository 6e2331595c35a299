"""The server: a process boundary and an HTTP API in front of an engine.

The API process speaks HTTP and text, the engine process tokens; `messages` is all that passes
between them. May import the rooms engine, model and kernels, and the files of `labkit` itself
(`library`, `rungs`, `paced`, `mine`, …); of the other rooms none.
"""
