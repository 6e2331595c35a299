"""A 4-bit GGUF becomes float32 weights that are exactly what its bits and scales stand for."""

import gguf
import numpy
import pytest
import torch

from labkit.model import load
from labkit.model.checkpoint import checked
from labkit.model.convert import convert_gguf

HIDDEN, HEADS, KV_HEADS, INNER = 64, 4, 2, 128
Q4_1 = gguf.GGMLQuantizationType.Q4_1


def quantize_rows(values):
    """Q4_1 by hand: of 32 numbers the least as an offset, a scale, and 4 bits for each."""
    blocks = values.reshape(-1, 32)
    least = blocks.min(axis=1, keepdims=True)
    scale = ((blocks.max(axis=1, keepdims=True) - least) / 15).astype(numpy.float16)
    least = least.astype(numpy.float16)
    bits = numpy.rint((blocks - least) / scale.astype(numpy.float32)).clip(0, 15)
    meant = bits.astype(numpy.float32) * scale + least.astype(numpy.float32)
    bits = bits.astype(numpy.uint8)
    packed = bits[:, :16] | (bits[:, 16:] << 4)
    data = numpy.concatenate([scale.view(numpy.uint8), least.view(numpy.uint8), packed], axis=1)
    return data.reshape(values.shape[0], -1), meant.reshape(values.shape)


def in_gguf_order(rows, heads):
    """llama.cpp rotates neighbouring rows of a head, Hugging Face the two halves of it."""
    return rows.reshape(heads, 2, -1, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """(the loaded model, {name: the weights that the GGUF's bits stand for})."""
    folder = tmp_path_factory.mktemp("gguf")
    random = numpy.random.default_rng(1)
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens += sorted(load("tiny").tokenizer.get_vocab(), key=lambda t: (len(t), t))[:253] + ["ĠĠ"]
    writer = gguf.GGUFWriter(folder / "small.gguf", "llama")
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
    writer.add_token_merges(["Ġ Ġ"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    meant = {}

    def add(theirs, ours, shape, heads=None):
        values = random.standard_normal(shape).astype(numpy.float32)
        data, meant[ours] = quantize_rows(values)
        data = data if heads is None else in_gguf_order(data, heads)
        writer.add_tensor(theirs, data, raw_dtype=Q4_1)

    layer = "model.layers.0."
    kv_size = HIDDEN // HEADS * KV_HEADS
    add("token_embd.weight", "model.embed_tokens.weight", (len(tokens), HIDDEN))
    add("blk.0.attn_q.weight", layer + "self_attn.q_proj.weight", (HIDDEN, HIDDEN), HEADS)
    add("blk.0.attn_k.weight", layer + "self_attn.k_proj.weight", (kv_size, HIDDEN), KV_HEADS)
    add("blk.0.attn_v.weight", layer + "self_attn.v_proj.weight", (kv_size, HIDDEN))
    add("blk.0.attn_output.weight", layer + "self_attn.o_proj.weight", (HIDDEN, HIDDEN))
    add("blk.0.ffn_gate.weight", layer + "mlp.gate_proj.weight", (INNER, HIDDEN))
    add("blk.0.ffn_up.weight", layer + "mlp.up_proj.weight", (INNER, HIDDEN))
    add("blk.0.ffn_down.weight", layer + "mlp.down_proj.weight", (HIDDEN, INNER))
    for name in ("blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"):
        writer.add_tensor(name, numpy.ones(HIDDEN, dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    convert_gguf(folder / "small.gguf", folder / "converted")
    return load(str(checked(folder / "converted"))), meant


def test_every_weight_is_what_its_four_bits_stand_for(converted):
    loaded, meant = converted
    weights = loaded.model.state_dict()
    for name, values in meant.items():
        assert weights[name].dtype == torch.float32
        numpy.testing.assert_array_equal(weights[name].numpy(), values, err_msg=name)


def test_the_head_is_the_embedding_and_is_stored_once(converted):
    loaded, _ = converted
    model = loaded.model
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    size = (loaded.path / "model.safetensors").stat().st_size
    assert size < 4 * sum(weight.numel() for weight in model.parameters()) + 4096


def test_shape_and_ends_come_from_the_gguf(converted):
    loaded, _ = converted
    config = loaded.model.config
    assert (config.num_attention_heads, config.num_key_value_heads) == (HEADS, KV_HEADS)
    assert config.rope_parameters["rope_theta"] == 100000.0
    assert config.max_position_embeddings == 128
    assert loaded.eos_token_ids == frozenset({2})
    assert not hasattr(config, "quantization_config")


def test_the_tokenizer_splits_digits_off_before_anything_else(converted):
    loaded, _ = converted
    assert loaded.tokenizer.tokenize("a  12") == ["a", "ĠĠ", "1", "2"]
    assert loaded.tokenizer.model_max_length == 128
