"""The models of the repository: each file becomes a `1/model.py`, run by the Python backend.

They are read by the server's Python, which has numpy, pyzmq and msgspec; the engine that they
start is another process, in labkit's own Python.
"""
