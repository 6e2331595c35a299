"""The same requests through `transformers`, for `bench offline`: fixed batches, and its own
continuous batching. Greedy, each request to its full length, on the device that labkit has."""

import time
from collections.abc import Callable, Sequence

from labkit.engine.request import Request
from labkit.model.loading import LoadedModel

STATIC_BATCH = 4
PATIENCE_S = 600  # without any result


def static(loaded: LoadedModel, requests: Sequence[Request]) -> int:
    """`generate` over batches of four, left-padded; a batch is as long as its longest answer.

    Returns how many of the tokens were asked for: what is beyond serves nobody.
    """
    import torch

    from labkit.engine.static import left_pad

    model = loaded.model
    for begin in range(0, len(requests), STATIC_BATCH):
        batch = requests[begin : begin + STATIC_BATCH]
        token_ids, mask = left_pad([request.prompt_token_ids for request in batch], 0)
        model.generate(
            torch.tensor(token_ids, device=model.device),
            attention_mask=torch.tensor(mask, device=model.device),
            max_new_tokens=max(request.max_tokens for request in batch),
            do_sample=False, eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
    return sum(request.max_tokens for request in requests)


def continuous(loaded: LoadedModel, requests: Sequence[Request]) -> int:
    """`init_continuous_batching`, all requests at once. RuntimeError when it stops answering."""
    from transformers import GenerationConfig

    longest = max(request.max_tokens for request in requests)
    manager = loaded.model.init_continuous_batching(
        generation_config=GenerationConfig(
            max_new_tokens=longest, do_sample=False, eos_token_id=-1, pad_token_id=0
        )
    )
    manager.start()
    try:
        for request in requests:
            manager.add_request(
                request.prompt_token_ids, request_id=request.request_id,
                max_new_tokens=request.max_tokens,
            )  # fmt: skip
        left, tokens = len(requests), 0
        while left:
            result = manager.get_result(timeout=PATIENCE_S)
            if result is None:
                raise RuntimeError(f"transformers gave no result; {left} requests are open")
            if result.is_finished():
                tokens, left = tokens + len(result.generated_tokens), left - 1
    finally:
        manager.stop(block=True)
    return tokens


WAYS: dict[str, Callable[[LoadedModel, Sequence[Request]], int]] = {
    f"transformers, batches of {STATIC_BATCH}": static,
    "transformers, continuous batching": continuous,
}


def rows(
    model: str, dtype: str, device: str, requests: Sequence[Request], runs: int, tell
) -> list[dict]:
    """The best of `runs` for each way; the first one includes what is prepared only once."""
    from labkit.model import loading

    loaded, found = loading.load(model, dtype=dtype, device=device), []
    for name, way in WAYS.items():
        speeds = []
        for number in range(1, runs + 1):
            tell(f"{name}, run {number}")
            begin = time.perf_counter()
            tokens = way(loaded, requests)
            speeds.append(tokens / (time.perf_counter() - begin))
        found.append({"engine": name, "tokens": tokens, "tokens_per_s": max(speeds)})
    return found
