"""Keeps every test away from the learner's own files, and from a language chosen outside."""

import os
import tempfile

import labkit  # noqa: F401, before torch, whose threads it tells to wait without spinning for long

_scratch = tempfile.TemporaryDirectory(prefix="labkit-tests-")
os.environ["LABKIT_MY"] = _scratch.name
os.environ.pop("LABKIT_LANG", None)
os.environ.setdefault("MPLBACKEND", "agg")

# Triton's kernels run by its interpreter where there is no GPU. It is asked for before anything
# imports triton, which torch does by itself.
if not os.path.exists("/dev/nvidiactl"):
    os.environ["TRITON_INTERPRET"] = "1"
