import pytest

from labkit.engine.blocks import BlockPool
from labkit.engine.request import Request, StepEvent
from labkit.engine.scheduler import Scheduler
from labkit.measure.experiments import continuous as lab
from labkit.measure.generation import Delivery, generate
from labkit.measure.schedule import play, watched
from labkit.model import load, load_decoder


class Words:
    """A detokenizer that holds every second token back."""

    def __init__(self):
        self.held = ""

    def push(self, token_id):
        self.held += chr(token_id)
        piece, self.held = (self.held, "") if len(self.held) == 2 else ("", self.held)
        return piece

    def flush(self):
        return self.held


class OneAtATime:
    """An engine on a clock that its steps move: a token a second, first come, first served."""

    def __init__(self):
        self.now, self.line = 100.0, []

    def clock(self):
        return self.now

    def add(self, request):
        self.line.append(request)

    def has_unfinished(self):
        return bool(self.line)

    def step(self):
        if not self.line:
            return []
        self.now += 1
        request = self.line[0]
        request.append(ord("a") + len(request.output_token_ids))
        if request.finish_reason:
            self.line.pop(0)
        token = request.output_token_ids[-1]
        return [StepEvent(request.request_id, token, request.finish_reason, self.now)]

    def sleep(self, seconds):
        self.now += seconds


def served(*requests):
    engine = OneAtATime()
    return lab.serve(engine, requests, Words, engine.sleep)


def test_requests_enter_at_their_arrival_and_their_clients_see_pieces():
    seen = served(Request("a", [1], 3), Request("b", [1], 1, arrival=10.0))
    assert seen["a"].token_times == [101.0, 102.0, 103.0]
    assert seen["a"].pieces == [(102.0, "ab"), (103.0, "c")]
    assert seen["b"].arrival == 110.0 and seen["b"].pieces == [(111.0, "a")]


def test_steps_are_counted_by_their_times():
    run = served(Request("a", [1], 3), Request("b", [1], 2))
    assert lab.num_steps(run) == 5 and lab.span_of(run) == 5.0


def test_waiting_in_line_counts_from_the_arrival():
    seen = served(Request("a", [1], 3), Request("b", [1], 1, arrival=1.0))
    assert seen["b"].first_text == 3.0  # arrived at 101, served after a, at 104


def test_four_ways_have_the_same_tokens_and_differ_in_what_is_sent_when():
    run = served(Request("a", [1], 3))
    ways = lab.four_ways(run, run)
    assert list(ways) == [
        "static, at the end", "static, streamed", "continuous, at the end", "continuous, streamed"
    ]  # fmt: skip
    late, early = lab.seen(ways["static, at the end"]), lab.seen(ways["static, streamed"])
    assert late == {"first text, s": 3.0, "E2E, s": 3.0, "tokens/s": 1.0}
    assert early == {"first text, s": 2.0, "E2E, s": 3.0, "tokens/s": 1.0}
    assert ways["static, at the end"]["a"].text == "abc"


def test_the_end_is_when_the_last_piece_is_there():
    delivery = Delivery(0.0, [1.0, 2.0], [(1.0, "x"), (2.0, "y")])
    assert lab.at_the_end(delivery).pieces == [(2.0, "xy")]


@pytest.fixture
def scheduled():
    def play_with(budget, **fields):
        scheduler = Scheduler(BlockPool(64, 16, False), max_num_batched_tokens=budget)
        requests = [Request("chat", [1] * 4, 30), Request("long", [1] * 160, 2, arrival=60.0)]
        return play(scheduler, requests, lambda num_tokens: 10.0 + num_tokens)

    return play_with


def test_a_long_prompt_stalls_a_chat_by_at_most_one_chunk(scheduled):
    """A decoding request, then a prompt sixteen budgets long."""
    whole, chunked = scheduled(1024), scheduled(11)
    assert lab.longest_gap(whole, ["chat"]) == 10 + 161
    assert lab.longest_gap(chunked, ["chat"]) == 10 + 11
    assert lab.prompt_tokens_between(whole, "chat") == 160
    assert lab.prompt_tokens_between(chunked, "chat") == 10


def test_slots_of_a_static_batch_are_wasted_until_its_longest_has_ended():
    rows = lab.static_rows({"a": 3, "b": 1, "c": 1}, 2)
    assert rows == [["a", "a", "a", "c"], ["b", None, None, None]]


def test_slots_of_a_schedule_are_taken_over():
    scheduler = Scheduler(BlockPool(8, 4, False), max_num_seqs=2)
    lengths = {"a": 3, "b": 1, "c": 1}
    schedule = play(scheduler, [Request(name, [1], n) for name, n in lengths.items()])
    assert lab.rows_of(schedule, 2) == [["a", "a", "a"], ["b", "c", None]]


@pytest.fixture(scope="module")
def tiny():
    return load_decoder("tiny")


def test_a_late_prompt_is_seen_by_the_chats_in_a_real_engine(tiny):
    engine = lab.assemble(tiny, max_num_batched_tokens=8)
    chats = [Request("chat", [5, 6, 7], 20, ignore_eos=True)]
    late = Request("long", [8] * 40, 2, ignore_eos=True)
    with watched(engine) as schedule:
        found = lab.stall(engine, chats, late)
    assert len(found["chat"].itl) == 19 and len(found["long"].itl) == 1
    assert found["long"].ttft > 0
    assert lab.prompt_tokens_between(schedule, "chat") == 7  # at most a budget beside the chat
    first = next(s for s in schedule.steps if any(p.request_id == "long" for p in s.parts))
    assert schedule.steps.index(first) >= 4  # not before the chat had its four tokens


def test_an_engine_runs_on_parts_of_ones_own(tiny):
    from labkit.model.sampling import sample

    class Noting(Scheduler):
        plans = 0

        def plan(self, now):
            type(self).plans += 1
            return super().plan(now)

    drawn = []

    def noting(logits, requests):
        drawn.append(len(requests))
        return sample(logits, requests)

    engine = lab.assemble(tiny, scheduler=Noting, sample=noting, max_num_seqs=1)
    request = Request("a", [5, 6, 7], 3, ignore_eos=True)
    lab.serve(engine, [request])
    assert Noting.plans == 3 and drawn == [1, 1, 1]
    assert engine.scheduler.max_num_seqs == 1
    assert request.output_token_ids == generate(load("tiny").model, [5, 6, 7], 3, True)


def test_without_a_cache_the_decoder_says_the_same(tiny):
    from labkit.engine.naive import NaiveEngine

    request = Request("a", [5, 6, 7], 4, ignore_eos=True)
    lab.serve(NaiveEngine(lab.WithoutCache(tiny.model), tiny.eos_token_ids), [request])
    assert request.output_token_ids == generate(load("tiny").model, [5, 6, 7], 4, True)
