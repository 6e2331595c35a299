"""What a config says of a model, against the models that `transformers` builds from it."""

import pytest
from families import CONFIGS, random_model

from labkit.model import tiny
from labkit.model.checkpoint import ModelError
from labkit.model.config import DecoderConfig
from labkit.model.facts import num_parameters, num_read_in_step, read_facts
from labkit.model.sources import DEFAULT_MODEL


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_counted_as_the_model_has_them(name):
    model = random_model(name)
    config = DecoderConfig.read(model.config.to_dict())
    assert num_parameters(config) == sum(weight.numel() for weight in model.parameters())
    table = 0 if config.tied_head else model.get_input_embeddings().weight.numel()
    assert num_read_in_step(config) == num_parameters(config) - table


def test_tiny_is_what_it_says():
    facts, model = read_facts("tiny"), tiny.tiny_model()
    assert num_parameters(facts.config) == sum(weight.numel() for weight in model.parameters())
    assert facts.eos_token_ids == {model.generation_config.eos_token_id}
    assert tiny.tiny_tokenizer().decode(facts.words).isalpha() and len(facts.words) == 52


def test_smollm2_is_what_it_says():
    facts = read_facts(DEFAULT_MODEL)
    assert num_parameters(facts.config) == 134_515_008
    assert facts.eos_token_ids == {2}
    assert not {0, 1, 2} & {*facts.words} and len(facts.words) > 40_000
    assert all(token < facts.config.vocab_size for token in facts.words)


def test_an_unknown_model_is_refused():
    with pytest.raises(ModelError, match="there is no model 'nothing'"):
        read_facts("nothing")
