"""How much memory a model will need, told before it is loaded: by its shape, not its weights."""

from argparse import Namespace
from dataclasses import dataclass

from labkit import rungs
from labkit.model import tiny
from labkit.model.checkpoint import read_json
from labkit.model.config import DecoderConfig
from labkit.model.facts import num_parameters
from labkit.model.sources import TINY, resolve

SIZES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}  # bytes of a weight
PROCESS_BYTES = 320 * 2**20  # of an engine's process beside its model: Python, torch, loops
PACED_BYTES = 64 * 2**20  # and of one that computes nothing


@dataclass(frozen=True)
class Need:
    """Bytes of one model: those that fill while it is loaded, and those of its caches."""

    loaded: int
    cache: int

    @property
    def total(self) -> int:
        return self.loaded + self.cache


def needed_by(options: Namespace) -> Need:
    """What the model of a server's options will need. Fetches it if need be. Raises ModelError."""
    config = shape_of(options.model)
    if options.device.startswith("paced:"):
        return Need(PACED_BYTES, 0)
    on_gpu = options.device.startswith("cuda")
    weights = num_parameters(config) * SIZES[options.dtype]
    if options.dtype == "int8":
        weights += 4 * config.vocab_size * config.hidden_size  # the embeddings stay as they are
    per_token = config.kv_numbers_per_token * (SIZES[options.dtype] if on_gpu else 4)
    cache = cache_bytes(options, config, per_token)
    return Need(weights, cache) if on_gpu else Need(weights + PROCESS_BYTES, cache + swap(options))


def shape_of(model: str) -> DecoderConfig:
    if model == TINY:
        return DecoderConfig.read(tiny.CONFIG)
    return DecoderConfig.read(read_json(resolve(model) / "config.json"))


def cache_bytes(options: Namespace, config: DecoderConfig, per_token: int) -> int:
    """Of keys and values, as `rungs.make` decides it."""
    if options.rung in rungs.ON_TRANSFORMERS:
        return 0
    if options.rung == "cached":
        length = options.max_model_len or min(config.max_position, 1024)
        return (options.max_num_seqs or 4) * length * per_token
    if options.num_blocks:
        return options.num_blocks * (options.block_size or rungs.BLOCK_SIZE) * per_token
    return rungs.parse_bytes(options.kv_memory or rungs.DEFAULT_KV_MEMORY)


def swap(options: Namespace) -> int:
    """Of the host's memory for what is preempted."""
    if options.rung != "preemptive" or options.preemption == "recompute":
        return 0
    return rungs.parse_bytes(options.swap_memory or rungs.DEFAULT_SWAP_MEMORY)
