"""From a model's name to weights in memory, from tokens to logits, from tokens to text.

Knows nothing of requests. May import `labkit.kernels` only. Importing this package is cheap;
torch comes with the first `load`.
"""


def load(name: str = "smollm2-135m", *, dtype: str = "float32", device: str = "cpu"):
    """A `LoadedModel` by name or path; see `labkit.model.loading.load`."""
    from labkit.model import loading

    return loading.load(name, dtype=dtype, device=device)
