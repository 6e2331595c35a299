"""Servers as processes of their own, and checkpoints made for them.

`shared`, `chain` and `single` are started once and for all tests that leave them as they are;
`server(…)` starts one that a test may end, stop or kill.
"""

import pytest
from serving_process import Server

from labkit.model import tiny

CHAINS = ("aď€b😀c", "\nDEFGHIJ")  # each byte leads to the next; the last one ends the answer
CIRCLE = "0123456789"  # never ends


def save(model, tokenizer, folder):
    model.config.max_position_embeddings = 65536
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def long_checkpoint(tmp_path_factory):
    """`tiny` with room for 65,536 tokens: an answer lasts as long as a test needs it."""
    return save(tiny.tiny_model(), tiny.tiny_tokenizer(), tmp_path_factory.mktemp("long") / "long")


@pytest.fixture(scope="session")
def chain_checkpoint(tmp_path_factory):
    """A model that says what is known: the next token depends on the last one alone."""
    folder = tmp_path_factory.mktemp("chain") / "chain"
    return save(chain_model(), tiny.tiny_tokenizer(), folder)


def chain_model():
    """`tiny` whose layers add nothing, and whose head finds the embedding of the token before."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig.from_dict(tiny.CONFIG | {"tie_word_embeddings": False})
    model, embeddings = LlamaForCausalLM(config).eval(), tiny.tiny_model().get_input_embeddings()
    rows = embeddings.weight.detach()
    rows = rows / rows.norm(dim=1, keepdim=True) * rows.shape[1] ** 0.5
    following = {token: token for token in range(len(rows))}
    encode = tiny.tiny_backend().encode
    for text in CHAINS:
        tokens = [*encode(text).ids, tiny.CONFIG["eos_token_id"]]
        following |= dict(zip(tokens, tokens[1:], strict=False))
    circle = encode(CIRCLE).ids
    following |= dict(zip(circle, circle[1:] + circle[:1], strict=True))
    head = torch.zeros_like(rows)
    for token, successor in following.items():
        head[successor] += rows[token]
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(rows)
        model.get_output_embeddings().weight.copy_(head)
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
    return model


@pytest.fixture
def server(tmp_path):
    """Starts servers, with `tiny` if no --model is given; ends them after the test."""
    started = []

    def start(*options, ready=True, **variables) -> Server:
        started.append(Server(tmp_path / f"server{len(started)}", options, variables))
        if ready:
            started[-1].wait_until_ready()
        return started[-1]

    yield start
    end_all(started)


def end_all(servers):
    for one in servers:
        one.stop()
    for one in servers:
        one.assert_nothing_is_left()


@pytest.fixture(scope="session")
def for_all(tmp_path_factory):
    """Starts a server that lives until the last test."""
    started = []

    def start(*options) -> Server:
        started.append(Server(tmp_path_factory.mktemp("server"), options))
        started[-1].wait_until_ready()
        return started[-1]

    yield start
    end_all(started)


@pytest.fixture(scope="session")
def shared_server(for_all):
    return for_all("--max-num-seqs", "4", "--num-blocks", "64")


@pytest.fixture(scope="session")
def chain_server(for_all, chain_checkpoint):
    return for_all(
        "--model", chain_checkpoint, "--served-model-name", "chain", "--max-num-seqs", "4",
        "--num-blocks", "4096",
    )  # fmt: skip


@pytest.fixture(scope="session")
def single_server(for_all, long_checkpoint):
    return for_all(
        "--model", long_checkpoint, "--served-model-name", "single", "--max-num-seqs", "1",
        "--max-queued-requests", "2", "--num-blocks", "4096",
    )  # fmt: skip


@pytest.fixture
def shared(shared_server):
    """`tiny`: four at once, 64 blocks of 16."""
    yield shared_server
    shared_server.cancel_all()


@pytest.fixture
def chain(chain_server):
    """A server that says what is known, for as long as one likes."""
    yield chain_server
    chain_server.cancel_all()


@pytest.fixture
def single(single_server):
    """One at once, two may wait; answers as long as a test needs."""
    yield single_server
    single_server.cancel_all()


@pytest.fixture(scope="session")
def engine():
    """The same engine as `shared` has, in this process."""
    from labkit.library import Engine

    return Engine.load("tiny", rung="preemptive", num_blocks=64, max_num_seqs=4)
