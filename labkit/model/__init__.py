"""From a model's name to weights in memory, from tokens to logits, from tokens to text.

Knows nothing of requests. May import `labkit.kernels` only. Importing this package is cheap;
torch comes with the first `load`.
"""

import os


def load(name: str = "smollm2-135m", *, dtype: str = "float32", device: str = "cpu"):
    """A `LoadedModel` by name or path, on `transformers`; see `labkit.model.loading.load`."""
    from labkit.model import loading

    return loading.load(name, dtype=dtype, device=device)


def load_decoder(name: str = "smollm2-135m", *, dtype: str = "float32", device: str = "cpu"):
    """The same on labkit's own decoder, with a KV cache; see `loading.load_decoder`."""
    from labkit.model import loading

    return loading.load_decoder(name, dtype=dtype, device=device)


def best_device() -> str:
    """What notebooks run on: `LABKIT_DEVICE` if it is set, else "cuda" where torch sees a GPU,
    else "cpu"."""
    if chosen := os.environ.get("LABKIT_DEVICE"):
        return chosen
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
