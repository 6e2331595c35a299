"""labkit: a small LLM server that is read, cut into exercises and run.

Importing this package loads nothing but itself; torch comes with `labkit.model`, and with
`labkit.Engine`, the library: `from labkit import Engine, SamplingParams`.
"""

import os

__version__ = "0.1.0"

# While torch's threads wait for each other they spin, each on a core of its own. When another
# program has one of those cores, a step waits for a thread that does not run: a forward pass of
# 0.14 s took 6.5 s beside two busy programs on two cores. After a shorter spin the thread sleeps
# and gives the core away: 0.40 s, and still 0.14 s on an idle machine. Read when torch loads.
os.environ.setdefault("GOMP_SPINCOUNT", "5000")


def __getattr__(name):
    """`Engine` and `SamplingParams`, loaded when they are first asked for."""
    if name == "Engine":
        from labkit.library import Engine

        return Engine
    if name == "SamplingParams":
        from labkit.model.sampling_params import SamplingParams

        return SamplingParams
    raise AttributeError("module 'labkit' has no attribute " + repr(name))
