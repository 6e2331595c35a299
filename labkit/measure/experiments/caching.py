"""What notebook 03 runs: the same engine with and without its cache, a step under the roofs, and
what rows of a cache hold."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import torch

from labkit.engine.request import Request
from labkit.engine.runner import Runner
from labkit.kernels import reference
from labkit.measure.generation import count_forwards
from labkit.measure.roofline import Cost
from labkit.model.flat_batch import FlatBatch, Span
from labkit.model.kv_cache import KVCache


def decode(
    decoder, prompt: list[int], num_tokens: int, span_of: Callable, chunk: int | None = None
) -> tuple[list[int], list[tuple[int, int, bool]]]:
    """`num_tokens` greedy tokens, `chunk` tokens of the prompt at a time (all of it if None).

    Returns them, and (start, how many tokens, whether it samples) of every span that was fed.
    """
    room = len(prompt) + num_tokens
    cache = KVCache(decoder.config, 1, room, decoder.dtype, decoder.device)
    request, fed = Request("a", list(prompt), num_tokens, block_table=[0]), []
    while len(request.output_token_ids) < num_tokens:
        left = request.num_tokens - request.num_computed_tokens
        span = span_of(request, min(left, chunk or left))
        logits = decoder(FlatBatch.build([span], room, decoder.device), cache)
        request.num_computed_tokens += len(span.token_ids)
        fed.append((span.start, len(span.token_ids), span.samples))
        if span.samples:
            request.append(int(logits[0].argmax()))
    return request.output_token_ids, fed


def attention_by(attend: Callable) -> type:
    """The textbook's paged attention with this `attend`, for `Decoder.attention`."""

    class Attention(reference.PagedAttention):
        def __call__(self, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
            out = torch.empty_like(q)
            for r, (begin, end, length) in enumerate(self.spans):
                table = self.batch.block_tables[r, : -(-length // self.batch.block_size)]
                own = reference.gather(kv, table, length)
                out[begin:end] = attend(q[begin:end], own, length - (end - begin))
            return out

    return Attention


def keys_values(decoder, token_ids: list[int]) -> torch.Tensor:
    """What a pass leaves in the cache: `[layers, 2, kv_heads, len(token_ids), head_dim]`."""
    cache = KVCache(decoder.config, 1, len(token_ids), decoder.dtype, decoder.device)
    decoder(FlatBatch.build([Span(token_ids, 0, [0])], len(token_ids), decoder.device), cache)
    return cache.data[:, 0]


def forgetful(engine_class: type) -> type:
    """The cached rung's engine without the use of its cache: `use_cache=False` in one line.

    Nothing else differs, neither the decoder nor its kernels, so what differs in the result is
    the cache's doing.
    """

    class Forgetful(engine_class):
        def next_logits(self, running: list[Request]) -> torch.Tensor:
            for request in running:
                request.num_computed_tokens = 0  # all of it once more
            return super().next_logits(running)

    return Forgetful


@dataclass
class Forwards:
    """What went through a model: forward passes, tokens, and the seconds spent inside."""

    passes: int = 0
    tokens: int = 0
    seconds: float = 0.0


@contextlib.contextmanager
def watched(engine) -> Iterator[Forwards]:
    """Counts what an engine's model computes while the `with` block runs, and for how long.

    An engine on `transformers` is only counted; `seconds` stays 0.
    """
    seen = Forwards()
    if not hasattr(engine, "runner"):
        with count_forwards(engine.model) as counted:
            yield seen
        seen.passes, seen.tokens = counted.passes, counted.tokens
        return
    decoder = engine.runner.decoder
    engine.runner.decoder = Watched(decoder, seen)
    try:
        yield seen
    finally:
        engine.runner.decoder = decoder


class Watched:
    """A decoder that adds what it computes to `seen`."""

    def __init__(self, decoder, seen: Forwards):
        self.decoder, self.seen = decoder, seen
        self.config, self.dtype, self.device = decoder.config, decoder.dtype, decoder.device

    def __call__(self, batch: FlatBatch, cache: KVCache) -> torch.Tensor:
        began = time.perf_counter()
        logits = self.decoder(batch, cache)
        logits[:1, 0].tolist()  # a device that works on its own has finished when this is here
        self.seen.seconds += time.perf_counter() - began
        self.seen.passes += 1
        self.seen.tokens += batch.token_ids.numel()
        return logits


@dataclass(frozen=True)
class Served:
    """How an engine served some requests."""

    name: str
    num_output_tokens: int
    num_steps: int
    tokens_computed: int  # through the model
    seconds: float
    model_seconds: float  # of these, inside the model; 0 where that was not timed
    outputs: tuple[tuple[int, ...], ...]

    @property
    def tokens_per_s(self) -> float:
        return self.num_output_tokens / self.seconds


def serve(
    name: str, engine, requests: Sequence[Request], each: Callable = lambda event: None
) -> Served:
    """Serves the requests to their end, as fast as it goes, and writes down what it took.

    `each` is called with every event: what a server does with a token, making text of it, say.
    """
    for request in requests:
        engine.add(request)
    steps, began = 0, time.perf_counter()
    with watched(engine) as seen:
        while engine.has_unfinished():
            for event in engine.step():
                each(event)
            steps += 1
        seconds = time.perf_counter() - began
    outputs = tuple(tuple(request.output_token_ids) for request in requests)
    made = sum(map(len, outputs))
    return Served(name, made, steps, seen.tokens, seconds, seen.seconds, outputs)


def step_seconds(
    decoder, num_tokens: int, num_new: int = 1, batch_size: int = 1, repeats: int = 2
) -> float:
    """Seconds of one step of `batch_size` sequences, the faster of `repeats`, after a first one.

    Each has `num_tokens` known tokens, the last `num_new` of which are computed now: 1 is a
    decode step with a cache, `num_tokens` is prefill, or a step without a cache. Which tokens
    and keys they are makes no difference to the time, so the cache holds zeros.
    """
    cache = KVCache(decoder.config, batch_size, num_tokens, decoder.dtype, decoder.device)
    cache.data.zero_()
    runner, times = Runner(decoder, cache), []
    requests = [
        Request(str(row), [1 + i % 97 for i in range(num_tokens)], block_table=[row])
        for row in range(batch_size)
    ]
    for _ in range(repeats + 1):
        for request in requests:
            request.num_computed_tokens = num_tokens - num_new
        began = time.perf_counter()
        runner.catch_up(requests).argmax(dim=-1).tolist()
        times.append(time.perf_counter() - began)
    return min(times[1:])


def decode_cost(
    forward_cost: Callable, config, context_len: int, batch_size: int = 1, bytes_per_number: int = 4
) -> Cost:
    """A decode step of `batch_size` sequences of `context_len` tokens, the new ones included.

    The weights are read once for all; arithmetic, keys and values are needed for each.
    """
    one = forward_cost(config, 1, context_len - 1, bytes_per_number)
    longer = forward_cost(config, 1, context_len, bytes_per_number)
    kv_bytes = (longer.num_bytes - one.num_bytes) * context_len
    return Cost(batch_size * one.num_flops, one.num_bytes + (batch_size - 1) * kv_bytes)


def prefill_cost(forward_cost: Callable, config, num_tokens: int, bytes_per_number: int = 4):
    """A prompt in one pass, as an engine runs it: logits for the last token only."""
    whole = forward_cost(config, num_tokens, 0, bytes_per_number)
    unasked = 2 * config.hidden_size * config.vocab_size * (num_tokens - 1)
    return Cost(whole.num_flops - unasked, whole.num_bytes)


@dataclass(frozen=True)
class Split:
    """One step: what is done beside the model (scheduling, sampling, text), and in the model."""

    name: str
    beside_s: float
    model_s: float
    kind: str  # "measured", or which half is "modelled"

    @property
    def busy(self) -> float:
        """The share of a step in which the model's device works, one thing after the other."""
        return self.model_s / (self.beside_s + self.model_s)

    @property
    def busy_split(self) -> float:
        """The same share when the two run side by side, for as long as the longer one takes."""
        return self.model_s / max(self.beside_s, self.model_s)

    @property
    def gain(self) -> float:
        """How many times faster a step is at most, side by side."""
        return (self.beside_s + self.model_s) / max(self.beside_s, self.model_s)


def shape(layers, hidden, heads, kv_heads, inner, vocab, num_params, head_dim=None):
    """A public configuration, with the names of `transformers`."""
    return SimpleNamespace(
        num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads,
        num_key_value_heads=kv_heads, intermediate_size=inner, vocab_size=vocab,
        head_dim=head_dim, num_params=num_params,
    )  # fmt: skip


PUBLIC = {  # from the config.json of each; SmolLM2 and Qwen3 use their embedding as head, too
    "SmolLM2-135M": shape(30, 576, 9, 3, 1536, 49152, 134_515_008),
    "Qwen3-0.6B": shape(28, 1024, 16, 8, 3072, 151936, 596_049_920, 128),
    "Llama 2 7B": shape(32, 4096, 32, 32, 11008, 32000, 6_738_415_616),
    "Llama 3 8B": shape(32, 4096, 32, 8, 14336, 128256, 8_030_261_248),
    "Llama 3 70B": shape(80, 8192, 64, 8, 28672, 128256, 70_553_706_496),
}
