"""With greedy decoding in float32 every rung gives the tokens of `transformers`' own generate."""

from functools import cache

import pytest
import torch
from families import CONFIGS, ONE_OF_EACH, random_model, random_tokens

from labkit import rungs
from labkit.engine.request import Request
from labkit.measure.generation import generate
from labkit.model.config import DecoderConfig
from labkit.model.cpu_decoder import CPUDecoder
from labkit.model.loading import LoadedModel, load, load_decoder
from labkit.model.sources import DEFAULT_MODEL
from labkit.model.tiny import tiny_tokenizer

NEAR_TIE = 1e-3  # between the two largest logits of transformers
LENGTHS = {1: 9, 5: 20, 16: 1, 17: 12, 64: 7, 200: 9, 33: 15}  # prompt tokens: output tokens
OTHERS = [name for name in CONFIGS if name not in ONE_OF_EACH]


def model_for(name: str, rung: str) -> LoadedModel:
    """`tiny`, SmolLM2 or a random model, as the rung runs it. No token ends a text."""
    return in_memory(name, rung in rungs.ON_TRANSFORMERS)


@cache
def in_memory(name: str, on_transformers: bool) -> LoadedModel:
    if name not in CONFIGS:
        found = (load if on_transformers else load_decoder)(name)
        return LoadedModel(name, found.path, found.model, found.tokenizer, frozenset())
    model = random_model(name)
    if not on_transformers:
        model = CPUDecoder(DecoderConfig.read(model.config.to_dict()), model.state_dict().get)
    return LoadedModel(name, None, model, tiny_tokenizer(), frozenset())


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return (random_tokens(length, seed=seed + length) % 256).tolist()


@cache
def oracle(name: str, prompt: tuple[int, ...], num_tokens: int) -> list[int]:
    return generate(model_for(name, "naive").model, list(prompt), num_tokens, use_cache=True)


def check_tokens(name: str, request: Request) -> None:
    """The request has ended with the tokens of transformers, up to a near-tie."""
    assert request.finish_reason == "length", request.error
    ours, prompt = request.output_token_ids, request.prompt_token_ids
    theirs = oracle(name, tuple(prompt), request.max_tokens)
    if ours == theirs:
        return
    place = next(i for i, pair in enumerate(zip(ours, theirs, strict=True)) if len(set(pair)) > 1)
    with torch.inference_mode():
        input_ids = torch.tensor([[*prompt, *ours[:place]]])
        logits = model_for(name, "naive").model(input_ids).logits[0, -1]
    (first, second), best = logits.topk(2).values.tolist(), logits.topk(2).indices.tolist()
    if first - second < NEAR_TIE and {ours[place], theirs[place]} == set(best):
        return
    pytest.fail(
        f"{name}, {request.request_id}, {len(prompt)} prompt tokens: output token {place} is "
        f"{ours[place]} (logit {logits[ours[place]]:.6f}), of transformers {theirs[place]} "
        f"({logits[theirs[place]]:.6f}); its best two are {best}: {first:.6f}, {second:.6f}"
    )


def run(engine, requests, arrive_at=None) -> None:
    """Runs to the end; request i is added before step `arrive_at(i)`, all at once without it."""
    waiting = [(arrive_at(i) if arrive_at else 0, r) for i, r in enumerate(requests)]
    step = 0
    while waiting or engine.has_unfinished():
        for at, request in waiting:
            if at <= step:
                engine.add(request)
        waiting = [(at, request) for at, request in waiting if at > step]
        engine.step()
        step += 1
        assert step < 20_000, "it does not end"


def requests_of(lengths=LENGTHS, seed: int = 0, **fields) -> list[Request]:
    return [
        Request(f"p{n}", prompt_of(n, seed), max_tokens=most, **fields)
        for n, most in lengths.items()
    ]


def engine_of(name: str, rung: str, **options):
    if rung in ("paged", "continuous", "preemptive"):
        options = {"num_blocks": 128} | options
    return rungs.make(rung, model_for(name, rung), **options)


def check(name: str, rung: str, requests, arrive_at=None, **options):
    engine = engine_of(name, rung, **options)
    run(engine, requests, arrive_at)
    for request in requests:
        check_tokens(name, request)
    return engine


@pytest.mark.parametrize("rung", rungs.RUNGS)
@pytest.mark.parametrize("name", ["tiny", *ONE_OF_EACH])
def test_every_rung_gives_the_tokens_of_transformers(name, rung):
    requests = requests_of()
    check(name, rung, requests)
    assert len({token for request in requests for token in request.output_token_ids}) > 20


@pytest.mark.parametrize("name", OTHERS)
def test_on_every_kind_of_model(name):
    """The rungs with a cache share a decoder, so one of them stands for the others."""
    check(name, "continuous", requests_of(), max_num_batched_tokens=50)


@pytest.mark.parametrize("rung", ["static", "cached", "paged"])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_whatever_the_size_of_a_batch(rung, size):
    check("tiny", rung, requests_of(), max_num_seqs=size)


@pytest.mark.parametrize("rung", rungs.RUNGS)
def test_requests_that_arrive_while_others_run(rung):
    check("tiny", rung, requests_of(), arrive_at=lambda i: 4 * i)


# Continuous batching


def requests_of_one_stem(block_size: int) -> list[Request]:
    """Prompts with their beginnings in common, one of whole blocks, two of them equal."""
    stem, other = prompt_of(max(24, block_size + 8), seed=1), prompt_of(11, seed=2)
    whole = stem[: len(stem) // block_size * block_size]
    prompts = [stem, [*stem[:-3], *other], other, stem, [*whole, *other[:1]], whole]
    return [Request(f"r{i}", prompt, max_tokens=3 + i) for i, prompt in enumerate(prompts)]


@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("budget", [1, 3, 7, 64, 256])
@pytest.mark.parametrize("block_size", [1, 8, 16, 64])
def test_whatever_the_blocks_the_budget_and_the_prefix_cache(block_size, budget, prefix_caching):
    requests = requests_of_one_stem(block_size)
    check(
        "tiny", "continuous", requests, arrive_at=lambda i: 2 * i, num_blocks=1024 // block_size,
        block_size=block_size, max_num_batched_tokens=budget, prefix_caching=prefix_caching,
    )  # fmt: skip
    num_cached = sum(request.num_cached_tokens for request in requests)
    assert num_cached >= block_size if prefix_caching else num_cached == 0


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_prompt_found_in_the_cache_gives_the_same_tokens(name):
    first, second = requests_of({65: 20}), requests_of({65: 20})
    check(name, "continuous", [*first, *second], arrive_at=lambda i: 30 * i)
    assert [r.num_cached_tokens for r in (*first, *second)] == [0, 64]


@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("budget", [5, 64])
@pytest.mark.parametrize(("block_size", "num_blocks"), [(1, 70), (8, 9), (16, 5)])
def test_preempted_requests_give_the_same_tokens(block_size, num_blocks, budget, prefix_caching):
    requests = requests_of({20: 45, 21: 40, 33: 30, 5: 50, 17: 30})
    check(
        "tiny", "continuous", requests, num_blocks=num_blocks, block_size=block_size,
        max_num_batched_tokens=budget, prefix_caching=prefix_caching,
    )  # fmt: skip
    assert sum(request.num_preemptions for request in requests) > 0


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_preempted_requests_of_every_family_give_the_same_tokens(name):
    requests = requests_of({20: 45, 21: 40, 33: 30, 5: 50})
    check(name, "continuous", requests, num_blocks=9, block_size=8)
    assert sum(request.num_preemptions for request in requests) > 0


@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 40])
@pytest.mark.parametrize("num_blocks", [64, 8])
def test_copies_of_a_prompt_give_its_tokens_each(length, prefix_caching, num_blocks):
    """They share the blocks of the prompt, and each gets its own where it begins to write."""
    prompt = prompt_of(length)
    first = Request("a", prompt, max_tokens=24)
    copies = [Request(f"a/{i}", prompt, max_tokens=24 - i, copy_of="a") for i in range(1, 4)]
    check(
        "tiny", "continuous", [first, *copies], num_blocks=num_blocks, max_num_batched_tokens=16,
        prefix_caching=prefix_caching,
    )  # fmt: skip
    if num_blocks == 64:
        assert all(copy.num_cached_tokens == length - 1 for copy in copies)


@pytest.mark.parametrize("rung", rungs.RUNGS)
def test_an_abort_changes_nothing_for_the_others(rung):
    requests = requests_of()
    engine = engine_of("tiny", rung)
    for request in requests:
        engine.add(request)
    engine.step()
    gone = [requests[0], requests[3], requests[-1]]
    assert [engine.abort(request.request_id) for request in gone] == [True] * 3
    run(engine, [])
    for request in requests:
        if request not in gone:
            check_tokens("tiny", request)
    assert all(request.finish_reason == "abort" for request in gone)


# The real model


@pytest.mark.parametrize("rung", rungs.RUNGS)
def test_smollm2_says_the_same_on_every_rung(rung):
    loaded = model_for(DEFAULT_MODEL, rung)
    prompts = {"The capital of France is": 16, "1, 2, 3,": 6, "<|im_start|>user\nHi": 6}
    requests = [
        Request(prompt, loaded.tokenizer.encode(prompt), max_tokens=most, ignore_eos=True)
        for prompt, most in prompts.items()
    ]
    check(DEFAULT_MODEL, rung, requests)


def test_in_int8_a_neighbour_never_changes_what_smollm2_says():
    loaded = load_decoder(DEFAULT_MODEL, dtype="int8")
    prompts = [loaded.tokenizer.encode(text) for text in ("One, two,", "The", "A " * 60)]
    prompts.append(loaded.encode_chat("Hi"))

    def answers(which) -> list[list[int]]:
        engine = rungs.make("continuous", loaded, num_blocks=64, prefix_caching=False)
        requests = [Request(str(i), prompts[i], max_tokens=8, ignore_eos=True) for i in which]
        run(engine, requests)
        return [request.output_token_ids for request in requests]

    everybody = range(len(prompts))
    assert [answers([i])[0] for i in everybody] == answers(everybody)
