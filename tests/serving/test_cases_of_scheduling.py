"""shared/cases over HTTP, those about cancelling, memory and scheduling; named after them."""

import asyncio
import json
import socket
import threading

import httpx
import pytest
from serving_process import PATIENCE_S, completion, until

from labkit.measure.experiments.weak_hash import polynomial_hash, twin

ENDLESS = {"max_tokens": 50_000, "ignore_eos": True}


def queued(single, count: int) -> list[dict]:
    """The requests that wait, once there are so many."""

    def found():
        waiting = [one for one in single.requests() if one["state"] == "waiting"]
        return len(waiting) == count and waiting

    return until(found, f"{count} waiting: {single.requests()}")


def test_17_a_running_and_a_queued_client_leave_and_the_next_starts(single):
    single.wait_until_idle()
    a = single.stream("a", **ENDLESS).take(3)
    b = single.stream("b", **ENDLESS)
    (waiting,) = queued(single, 1)
    assert waiting["id"] == b.id and waiting["blocks"] == 0
    a_held = single.request(a.id)
    assert a_held["state"] == "running" and a_held["blocks"] > 0
    b.leave()
    a.leave()
    assert single.text("c")
    assert {single.request(s.id)["finish_reason"] for s in (a, b)} == {"abort"}
    single.wait_until_idle()


def test_18_an_abort_tells_truthfully_whether_it_ended_something(single):
    running = single.stream("a", **ENDLESS).take(2)
    waiting = single.stream("b", **ENDLESS)
    queued(single, 1)
    for stream in (waiting, running):
        first, second = single.delete(stream.id), single.delete(stream.id)
        assert first == {"id": stream.id, "cancelled": True, "state": "finished"}
        assert second == {"id": stream.id, "cancelled": False, "state": "finished"}
        assert stream.rest().error["code"] == "cancelled"
    answer = single.complete("c")
    assert single.delete(answer["id"])["cancelled"] is False
    unknown = single.http.delete("/v1/requests/cmpl-none")
    assert unknown.status_code == 404 and "cmpl-none" in unknown.json()["error"]["message"]
    single.wait_until_idle()


def test_19_cancelling_a_queued_request_leaves_the_running_one_alone(single):
    asked = {"max_tokens": 300, "ignore_eos": True}
    expected = single.text("runs", **asked)
    running = single.stream("runs", **asked).take(2)
    waiting = single.stream("waits", **ENDLESS)
    queued(single, 1)
    assert single.delete(waiting.id)["cancelled"] is True
    assert running.rest().text() == expected and running.is_done
    assert single.request(running.id)["preemptions"] == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [(["--max-unsent-tokens", 8], "doesn't read"),
     (["--max-unsent-tokens", 10**6, "--write-timeout", 0.5], "--write-timeout")],
    ids=["tokens", "seconds"],
)  # fmt: skip
def test_20_a_client_that_never_reads_is_dropped_and_nobody_else_notices(
    server, chain_checkpoint, options, reason
):
    small = server(
        "--model", chain_checkpoint, "--served-model-name", "chain", "--max-num-seqs", 2,
        "--num-blocks", 4096, *options,
    )  # fmt: skip
    body = json.dumps(completion("0", stream=True, request_id="deaf", **ENDLESS)).encode()
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.settimeout(PATIENCE_S)
        deaf.connect((small.http.base_url.host, small.http.base_url.port))
        deaf.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
            b"\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        (held,) = until(small.requests, "the request of the deaf client")
        other = small.stream("0", **ENDLESS)
        until(lambda: small.request(held["id"])["state"] == "finished" or not other.take(50), "")
        dropped = small.request(held["id"])
        assert reason in dropped["dropped"] and dropped["unsent_tokens"] == 0
        assert [one["id"] for one in small.requests()] == [other.id]
        assert other.error is None and set(other.take(10).text()) == set("0123456789")
        read = b"".join(iter(lambda: receive(deaf), b""))  # it ends: nobody waits for ever
        assert b"[DONE]" not in read
    assert small.metric("labkit:streams_dropped_total") == 1
    other.leave()
    small.wait_until_idle()


def receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except ConnectionError:
        return b""


def test_20_a_batch_larger_than_what_may_be_unsent_reaches_a_client_that_reads(
    server, chain_checkpoint
):
    """Many prompts are put in line one after the other; the first ones answer meanwhile."""
    small = server(
        "--model", chain_checkpoint, "--served-model-name", "chain", "--max-num-seqs", 8,
        "--num-blocks", 4096, "--max-unsent-tokens", 8,
    )  # fmt: skip
    stream = small.stream(["0"] * 24, max_tokens=20, ignore_eos=True).rest()
    assert stream.is_done and stream.reasons() == dict.fromkeys(range(24), "length")
    assert {stream.text(index) for index in range(24)} == {"12345678901234567890"}


def test_a_batch_that_is_cancelled_while_it_is_put_in_line_leaves_nothing(chain):
    prompts = ["0"] * 200
    answers = []
    asking = threading.Thread(
        target=lambda: answers.append(
            chain.post("/v1/completions", completion(prompts, **ENDLESS))
        )
    )
    asking.start()
    (held,) = until(chain.requests, "the batch")
    assert chain.delete(held["id"])["state"] == "finished"
    asking.join(PATIENCE_S)
    assert answers[0].status_code == 409
    chain.wait_until_idle()
    assert chain.metric("vllm:num_requests_waiting") == 0


def test_21_what_never_fits_is_refused_with_the_numbers_and_the_next_runs(shared):
    answer = shared.post("/v1/completions", completion("x" * 100, max_tokens=450))
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["param"] == "max_tokens"
    assert all(number in error["message"] for number in ("100", "450", "512"))
    assert shared.text()


def test_23_24_the_urgent_preempts_and_the_other_goes_on_as_if_nothing_was(single):
    asked = {"max_tokens": 200, "ignore_eos": True}
    expected = single.text("slow", **asked)
    before = single.metric("vllm:num_preemptions_total")
    slow = single.stream("slow", priority=5, **asked).take(3)
    urgent = single.stream("urgent", priority=0, **ENDLESS).take(1)
    states = {one["id"]: one["state"] for one in single.requests()}
    assert states == {slow.id: "preempted", urgent.id: "running"}
    assert single.request(slow.id)["blocks"] == 0
    assert single.delete(urgent.id)["cancelled"] is True
    assert slow.rest().text() == expected and slow.is_done
    assert single.request(slow.id)["preemptions"] == 1
    assert single.metric("vllm:num_preemptions_total") == before + 1


def test_24_among_equals_nobody_is_preempted(single):
    before = single.metric("vllm:num_preemptions_total")
    first = single.stream("a", max_tokens=200, ignore_eos=True).take(2)
    second = single.stream("b", max_tokens=20, ignore_eos=True)
    assert first.rest().is_done and second.rest().is_done
    assert [single.request(s.id)["preemptions"] for s in (first, second)] == [0, 0]
    assert single.metric("vllm:num_preemptions_total") == before


def test_25_a_negative_priority_is_more_urgent_than_0(single):
    slow = single.stream("slow", max_tokens=300, ignore_eos=True).take(2)
    assert single.complete("urgent", priority=-3)["choices"][0]["finish_reason"] == "length"
    assert slow.rest().is_done and single.request(slow.id)["preemptions"] == 1


def test_26_a_prompt_of_whole_blocks_that_is_known_leaves_a_token_to_compute(shared):
    prompt = [*range(10, 58)]  # three blocks
    answers = [shared.complete(prompt) for _ in range(2)]
    cached = [a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in answers]
    assert cached[0] == 0 and 0 < cached[1] < 48
    assert answers[0]["choices"] == answers[1]["choices"]


def test_26_another_salt_shares_nothing(shared):
    prompt = [*range(100, 148)]
    for salt, expected in (("one", 0), ("two", 0), ("one", 47)):
        details = shared.complete(prompt, cache_salt=salt)["usage"]["prompt_tokens_details"]
        assert (details["cached_tokens"] > 0) == (expected > 0)


def test_28_a_long_prompt_comes_in_chunks_between_the_tokens_of_another(server, long_checkpoint):
    chunked = server(
        "--model", long_checkpoint, "--served-model-name", "long", "--num-blocks", 4096,
        "--max-num-batched-tokens", 32,
    )  # fmt: skip
    assert asyncio.run(tokens_during_a_long_prompt(chunked, 16 * 32)) >= 8  # of about 16


async def tokens_during_a_long_prompt(server, length: int) -> int:
    """How many tokens a stream gets between the request of a long prompt and its first token."""
    count, began, ended = 0, asyncio.Event(), asyncio.Event()

    async def other(client):
        nonlocal count
        body = completion("0", stream=True, **ENDLESS)
        async with client.stream("POST", "/v1/completions", json=body) as response:
            async for line in response.aiter_lines():
                began.set()
                count += line.startswith("data: ")
                if ended.is_set():
                    return

    async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as client:
        streaming = asyncio.create_task(other(client))
        await began.wait()
        before = count
        body = completion([7] * length, max_tokens=1, stream=True, ignore_eos=True)
        async with client.stream("POST", "/v1/completions", json=body) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    break
        during = count - before
        ended.set()
        await streaming
    return during


def test_33_beyond_the_cap_429_and_a_place_that_is_left_is_taken(single):
    single.wait_until_idle()
    running = single.stream("a", **ENDLESS).take(1)
    waiting = [single.stream(f"w{i}", **ENDLESS) for i in range(2)]
    queued(single, 2)
    for stream in (False, True):
        refused = single.post("/v1/completions", completion("late", stream=stream))
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) > 0
        assert refused.json()["error"]["type"] == "rate_limit_error"
    assert single.delete(waiting[0].id)["cancelled"] is True
    waiting.append(single.stream("now there is room", **ENDLESS))
    queued(single, 2)
    for stream in [running, *waiting]:
        stream.leave()
    single.wait_until_idle()


@pytest.mark.parametrize("stream", [False, True])
def test_33_a_deadline_ends_a_request_that_waits(single, stream):
    running = single.stream("a", **ENDLESS).take(1)
    if stream:
        late = single.stream("late", deadline_ms=50).rest()
        assert late.error["code"] == "deadline" and not late.is_done
    else:
        late = single.post("/v1/completions", completion("late", deadline_ms=50))
        assert late.status_code == 408 and late.json()["error"]["code"] == "deadline"
    assert single.request(running.id)["state"] == "running"
    running.leave()
    single.wait_until_idle()


def test_33_a_deadline_ends_a_request_that_runs_and_keeps_what_was_made(single):
    answer = single.post("/v1/completions", completion("a", deadline_ms=2000, **ENDLESS)).json()
    assert answer["choices"][0]["finish_reason"] == "deadline"
    assert 0 < answer["usage"]["completion_tokens"] < 50_000


COUNTERS = (
    "vllm:time_to_first_token_seconds_count", "vllm:e2e_request_latency_seconds_count",
    "vllm:request_success_total", "vllm:num_preemptions_total", "vllm:generation_tokens_total",
    "vllm:request_queue_time_seconds_count",
)  # fmt: skip


def test_34_every_request_with_a_token_is_counted_once(single):
    single.wait_until_idle()
    before = [single.metric(name) for name in COUNTERS]
    slow = single.stream("slow", max_tokens=100, ignore_eos=True, priority=9).take(2)
    for number in range(2):
        single.text("urgent", ignore_eos=True, priority=-number)
    slow.rest()
    running = single.stream("a", max_tokens=400, ignore_eos=True).take(1)
    never = single.stream("never runs", **ENDLESS)
    queued(single, 1)
    single.delete(never.id)
    running.rest()
    single.wait_until_idle()
    first, e2e, ended, preempted, tokens, begun = (
        single.metric(name) - old for name, old in zip(COUNTERS, before, strict=True)
    )
    assert (first, e2e, ended, begun) == (4, 4, 5, 4)
    assert tokens == 100 + 2 * 8 + 400 and preempted >= 1


def test_gauges_fall_to_0_when_the_last_client_leaves(single):
    single.wait_until_idle()
    stream = single.stream("a", **ENDLESS).take(2)
    until(lambda: single.metric("vllm:num_requests_running") == 1, "one running")
    stream.leave()
    for name in ("vllm:num_requests_running", "vllm:kv_cache_usage_perc"):
        until(lambda name=name: single.metric(name) == 0, f"{name} 0", 30)


def test_22_nobody_can_outgrow_the_whole_pool_and_what_fills_it_comes_to_its_end(server):
    """A server lets in only what fits alone. Three that each fill the pool preempt each other."""
    small = server("--num-blocks", 4, "--max-num-seqs", 3)
    prompt, whole = [*range(10, 20)], {"max_tokens": 54, "ignore_eos": True}
    error = small.post("/v1/completions", completion(prompt, max_tokens=55)).json()["error"]
    assert "max_model_len, 64" in error["message"] and error["param"] == "max_tokens"
    alone = small.text(prompt, **whole)
    streams = [small.stream(prompt, **whole) for _ in range(3)]
    assert [stream.rest().text() for stream in streams] == [alone] * 3
    assert sum(small.request(stream.id)["preemptions"] for stream in streams) > 0
    small.wait_until_idle()


def test_27_prompts_that_collide_in_a_weak_hash_share_no_block(shared):
    prompt = [*range(60, 108)]
    other = twin(prompt, 256)
    assert polynomial_hash(0, prompt) == polynomial_hash(0, other) and prompt != other
    alone = shared.complete(other, cache_salt="alone", logprobs=1)["choices"][0]
    shared.complete(prompt, cache_salt="x")
    answer = shared.complete(other, cache_salt="x", logprobs=1)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert answer["choices"][0] == alone
