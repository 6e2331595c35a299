"""The engine inside a real Triton Inference Server, to see what that server is for.

`install` makes its environment, `model_config` and `repository` write what it reads, `models` is
what it runs, `server` starts it, `client` asks it, `comparison` measures it beside labkit's own
server. "Triton" alone is never said here: notebook 05's Triton is a kernel language.
"""


def comparison(**options) -> dict:
    """The dynamic batcher beside continuous batching, and loading and unloading of models.

    Measured now where the server is installed (`python3 -m labkit doctor --fix triton-server`),
    else the stored result; `result["stored"]` tells which, `result["date"]` and
    `result["machine"]` when and where. Options and keys: see `comparison_run.comparison`.
    """
    from labkit.fleet.triton_server import comparison_run

    return comparison_run.comparison(**options)
