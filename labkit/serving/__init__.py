"""The server: a process boundary and an HTTP API in front of an engine.

The API process speaks HTTP and text, the engine process tokens; `messages` is all that passes
between them. May import engine, model and kernels, and nothing above.
"""
