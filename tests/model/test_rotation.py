"""Turning the residual stream changes nothing but how large its largest numbers are."""

from dataclasses import replace

import pytest
import torch
from families import CONFIGS, random_model

from labkit.model.config import DecoderConfig
from labkit.model.decoder import Decoder
from labkit.model.flat_batch import FlatBatch, Span
from labkit.model.kv_cache import KVCache
from labkit.model.rotation import rotated, rotation


def logits(decoder, token_ids):
    cache = KVCache(decoder.config, 8, 16, torch.float32, "cpu")
    batch = FlatBatch.build([Span(token_ids, 0, list(range(8)))], 16)
    batch.logits_rows = torch.arange(len(token_ids))
    return decoder(batch, cache)


def test_a_rotation_keeps_lengths_and_angles():
    turn = rotation(48)
    assert torch.allclose(turn @ turn.t(), torch.eye(48), atol=1e-6)
    assert torch.equal(turn, rotation(48))


@pytest.mark.parametrize("family", CONFIGS)
def test_the_logits_of_a_turned_model_are_those_of_the_model(family):
    model = random_model(family)
    config = DecoderConfig.read(model.config.to_dict())
    tensors = model.state_dict().get
    turned = rotated(tensors, config.hidden_size, config.tied_head)
    token_ids = list(range(3, 60))
    plain = logits(Decoder(config, tensors), token_ids)
    ours = logits(Decoder(replace(config, tied_head=False), turned), token_ids)
    assert torch.allclose(ours, plain, atol=2e-4), (ours - plain).abs().max()


def test_a_channel_that_stands_out_is_spread_over_all():
    stream = torch.randn(4, 96, generator=torch.Generator().manual_seed(1))
    stream[:, 7] = 100
    before = stream.abs().amax(1) / stream.square().mean(1).sqrt()
    turned = stream @ rotation(96)
    after = turned.abs().amax(1) / turned.square().mean(1).sqrt()
    assert (after < before / 2).all()
