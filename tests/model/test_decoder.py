"""The decoder's logits are those of `transformers`, family by family and token by token."""

import random
from copy import deepcopy

import pytest
import torch
from families import CONFIGS, HAS_VNNI, ONE_OF_EACH, random_model, random_tokens
from safetensors.torch import load_file, save_file

from labkit.model.checkpoint import ModelError
from labkit.model.config import DecoderConfig
from labkit.model.cpu_decoder import CPUDecoder
from labkit.model.decoder import Decoder
from labkit.model.flat_batch import FlatBatch, Span
from labkit.model.kv_cache import KVCache
from labkit.model.loading import load_decoder
from labkit.model.tiny import tiny_tokenizer

LENGTHS = (70, 33, 64, 1, 47)  # tokens of five sequences


def decoder_of(model, kind=CPUDecoder, **options) -> Decoder:
    return kind(DecoderConfig.read(model.config.to_dict()), model.state_dict().get, **options)


def scattered(num_tokens: int, block_size: int, free: list[int]) -> list[int]:
    """A block table of blocks that lie anywhere, taken from `free`."""
    return [free.pop() for _ in range(-(-num_tokens // block_size))]


def logits_by_position(decoder, sequences, block_size: int, rng: random.Random) -> list:
    """For each sequence: position → logits, from steps that mix chunks and single tokens.

    A chunk gives the logits after its last token only. The blocks lie anywhere in the cache.
    """
    num_blocks = 3 + sum(-(-len(tokens) // block_size) for tokens in sequences)
    cache = KVCache(decoder.config, num_blocks, block_size, decoder.dtype, "cpu")
    free = list(range(num_blocks))
    rng.shuffle(free)
    tables = [scattered(len(tokens), block_size, free) for tokens in sequences]
    done = [0] * len(sequences)
    rows = [{} for _ in sequences]
    while any(n < len(tokens) for n, tokens in zip(done, sequences, strict=True)):
        spans, who = [], []
        for i, tokens in enumerate(sequences):
            left = len(tokens) - done[i]
            if left and rng.random() < 0.9:
                count = min(left, rng.choice([1, 1, 1, 2, 3, 17]))
                part = tokens[done[i] : done[i] + count]
                spans.append(Span(part, done[i], tables[i], samples=rng.random() < 0.9))
                done[i] += count
                if spans[-1].samples:
                    who.append((i, done[i] - 1))
        if spans:
            logits = decoder(FlatBatch.build(spans, block_size), cache)
            assert logits.shape == (len(who), decoder.config.vocab_size)
            for (i, position), row in zip(who, logits, strict=True):
                rows[i][position] = row
    return rows


def worst_difference(decoder, model, block_size: int = 16, seed: int = 0) -> float:
    sequences = [random_tokens(n, seed=seed + n).tolist() for n in LENGTHS]
    found = logits_by_position(decoder, sequences, block_size, random.Random(seed))
    worst = 0.0
    for tokens, rows in zip(sequences, found, strict=True):
        with torch.inference_mode():
            wanted = model(torch.tensor([tokens])).logits[0].float()
        for position, row in rows.items():
            worst = max(worst, (row - wanted[position]).abs().max().item())
    return worst


@pytest.mark.parametrize("kind", [CPUDecoder, Decoder])
@pytest.mark.parametrize("name", CONFIGS)
def test_logits_are_those_of_transformers(name, kind):
    model = random_model(name)
    assert worst_difference(decoder_of(model, kind), model) < 1e-4


@pytest.mark.parametrize("name", CONFIGS)
def test_all_layers_in_one_call_give_what_they_give_one_by_one(name):
    """Steps of single tokens only, which is when a float32 decoder takes them in one call."""
    together, one_by_one = (decoder_of(random_model(name)) for _ in range(2))
    assert together.products is not None
    one_by_one.products = None
    caches = [KVCache(d.config, 9, 4, torch.float32, "cpu") for d in (together, one_by_one)]
    for cache in caches:
        cache.data.copy_(torch.randn(cache.data.shape, generator=torch.Generator().manual_seed(1)))
    for step in range(6):
        spans = [Span([3 + step], 4 + step, [2, 7, 0]), Span([5], step, [8, 1])]
        batch = FlatBatch.build(spans, 4)
        found, wanted = (d(batch, c) for d, c in zip((together, one_by_one), caches, strict=True))
        assert (found - wanted).abs().max() < 1e-4
        assert (caches[0].data - caches[1].data).abs().max() < 1e-5


@pytest.mark.skipif(not HAS_VNNI, reason="a processor without AVX-512 VNNI")
def test_in_int8_it_makes_no_difference_to_the_last_bit():
    """A bit could change a token, and with it an answer, by how many others there are."""
    decoder = load_decoder("tiny", dtype="int8").model
    assert decoder.products is not None
    cache = KVCache(decoder.config, 40, 4, torch.float32, "cpu")
    cache.data.copy_(torch.randn(cache.data.shape, generator=torch.Generator().manual_seed(1)))
    spans = [Span([3 + i], 2, [i]) for i in range(40)]
    together = decoder(FlatBatch.build(spans[:20], 4), cache)
    beside_more = decoder(FlatBatch.build(spans, 4), cache)[:20]  # too many for one call
    decoder.products = None
    one_by_one = decoder(FlatBatch.build(spans[:20], 4), cache)
    assert torch.equal(together, one_by_one)
    assert torch.equal(together, beside_more)


@pytest.mark.parametrize("block_size", [1, 8, 16, 64])
@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_whatever_the_size_of_a_block(name, block_size):
    model = random_model(name)
    assert worst_difference(decoder_of(model), model, block_size, seed=block_size) < 1e-4


@pytest.mark.parametrize("name", ["llama-tied", "qwen2", "qwen3"])
def test_bfloat16_is_as_near_to_float32_as_transformers_bfloat16(name):
    """Both round in their own places; neither may be further away than twice the other."""
    model = random_model(name)
    decoder = decoder_of(model, dtype=torch.bfloat16)
    tokens = random_tokens(60, seed=5).tolist()
    cache = KVCache(decoder.config, 4, 16, decoder.dtype, "cpu")
    rows = torch.cat([
        decoder(FlatBatch.build([Span(tokens[i : i + 1], i, [2, 0, 3, 1])], 16), cache)
        for i in range(60)
    ])  # fmt: skip
    assert rows.dtype == torch.float32
    with torch.inference_mode():
        exact = model(torch.tensor([tokens])).logits[0]
        coarse = deepcopy(model).bfloat16()(torch.tensor([tokens])).logits[0].float()
    ours, theirs = (rows - exact).std(), (coarse - exact).std()
    assert ours < 2 * theirs
    assert (rows - coarse).std() < 0.05 * exact.std()


# From a folder


def save(model, folder, **options):
    model.save_pretrained(folder, **options)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", CONFIGS)
def test_a_saved_checkpoint_gives_the_same_logits(name, tmp_path):
    model = random_model(name)
    decoder = load_decoder(str(save(model, tmp_path))).model
    assert worst_difference(decoder, model) < 1e-4


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_checkpoint_in_many_files_gives_the_same_logits(name, tmp_path):
    model = random_model(name)
    save(model, tmp_path, max_shard_size="60KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert worst_difference(load_decoder(str(tmp_path)).model, model) < 1e-4


def damaged(folder, change, model="llama"):
    """Saves a model with its tensors as `change` leaves them."""
    save(random_model(model), folder)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


@pytest.mark.parametrize(
    "name",
    [
        "model.embed_tokens.weight",
        "model.layers.1.self_attn.k_proj.weight",
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.0.input_layernorm.weight",
        "model.norm.weight",
        "lm_head.weight",
    ],
)
def test_a_missing_tensor_is_named(name, tmp_path):
    with pytest.raises(ModelError, match=name):
        load_decoder(damaged(tmp_path, lambda tensors: tensors.pop(name)))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("qwen2", "model.layers.0.self_attn.q_proj.bias"),
        ("qwen3", "model.layers.1.self_attn.k_norm.weight"),
        ("llama-biases", "model.layers.1.mlp.down_proj.bias"),
    ],
)
def test_a_missing_tensor_that_other_families_do_without_is_named(model, name, tmp_path):
    with pytest.raises(ModelError, match=name):
        load_decoder(damaged(tmp_path, lambda tensors: tensors.pop(name), model))


@pytest.mark.parametrize(
    ("name", "has", "wanted"),
    [
        ("model.embed_tokens.weight", "[299, 48]", "[300, 48]"),
        ("model.layers.1.self_attn.q_proj.weight", "[31, 48]", "[32, 48]"),
        ("model.layers.0.mlp.gate_proj.weight", "[95, 48]", "[96, 48]"),
        ("model.layers.0.mlp.down_proj.weight", "[47, 96]", "[48, 96]"),
        ("model.layers.1.post_attention_layernorm.weight", "[47]", "[48]"),
        ("lm_head.weight", "[299, 48]", "[300, 48]"),
    ],
)
def test_a_tensor_of_the_wrong_shape_is_named_with_both_shapes(name, has, wanted, tmp_path):
    def cut(tensors):
        tensors[name] = tensors[name][:-1].clone()

    with pytest.raises(ModelError) as error:
        load_decoder(damaged(tmp_path, cut))
    assert name in str(error.value) and has in str(error.value) and wanted in str(error.value)


# What a config may ask for


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "gelu"}, "hidden_act to 'gelu'; accepted: silu"),
        ({"model_type": "gpt2"}, "model_type to 'gpt2'; accepted: llama, mistral"),
        ({"model_type": None}, "model_type to None"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "rope_type to 'yarn'"),
        ({"rope_parameters": None, "rope_scaling": {"type": "dynamic"}}, "rope_type to 'dynamic'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor to 0.5; accepted: 1.0"),
        ({"rope_parameters": {"partial_rotary_factor": 0.25}}, "partial_rotary_factor to 0.25"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ({"num_key_value_heads": 3}, "num_key_value_heads to 3"),
        ({"num_attention_heads": 0}, "num_attention_heads to 0"),
        ({"head_dim": 7}, "head_dim to 7"),
        ({"vocab_size": "300"}, "vocab_size to '300'"),
        ({"rope_parameters": {"rope_type": "linear"}}, "factor"),
    ],
)
def test_what_the_decoder_does_not_do_is_refused_by_name(change, message):
    with pytest.raises(ModelError, match=message):
        DecoderConfig.read(CONFIGS["llama"].to_dict() | change)


@pytest.mark.parametrize("name", ["hidden_size", "vocab_size", "num_hidden_layers"])
def test_what_a_config_lacks_is_named(name):
    config = CONFIGS["llama"].to_dict()
    del config[name]
    with pytest.raises(ModelError, match=f"config.json has no '{name}'"):
        DecoderConfig.read(config)


def test_a_config_as_transformers_4_wrote_it():
    config = CONFIGS["llama"].to_dict() | {"rope_theta": 5e5, "rope_scaling": None}
    del config["rope_parameters"]
    assert DecoderConfig.read(config).rope_theta == 5e5
    scaled = DecoderConfig.read(config | {"rope_scaling": {"type": "linear", "factor": 2.0}})
    assert (scaled.rope_scaling["rope_type"], scaled.rope_theta) == ("linear", 5e5)


def test_a_sequence_is_at_most_as_long_as_a_sliding_window():
    assert DecoderConfig.read(CONFIGS["mistral-window"].to_dict()).max_position == 512
    assert DecoderConfig.read(CONFIGS["mistral"].to_dict()).max_position == 1024
    qwen = CONFIGS["qwen2"].to_dict() | {"sliding_window": 64}
    assert DecoderConfig.read(qwen | {"use_sliding_window": True}).max_position == 64
    assert DecoderConfig.read(qwen | {"use_sliding_window": False}).max_position == 1024
