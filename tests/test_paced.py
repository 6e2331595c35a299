"""The paced device on a virtual clock: its times, its schedule, and what it refuses."""

import json
import subprocess
import sys
from random import Random

import pytest

from labkit import paced, rungs
from labkit.engine.policies import make_policy
from labkit.engine.policies.preemption import Recompute, Swap
from labkit.engine.request import Request
from labkit.engine.scheduler import Scheduler
from labkit.fleet.routing import RoundRobin
from labkit.library import Engine
from labkit.measure.simulate import cards
from labkit.measure.simulate.cost import CostModel, seconds
from labkit.measure.simulate.fleet import Fleet
from labkit.measure.simulate.pool import LeanPool
from labkit.measure.simulate.records import Records
from labkit.measure.simulate.replica import Replica
from labkit.measure.simulate.requests import Arrival
from labkit.measure.simulate.watch import Watch
from labkit.model import tiny
from labkit.model.sampling_params import SamplingParams
from labkit.paced_device import Alarm, paced_model

EOS = 258
COST = CostModel(
    fixed_s=0.001, weights_s=0.01, per_prompt_token_s=0.002, per_decode_s=0.003,
    per_context_token_s=1e-4, per_swapped_block_s=0.005, overlap=True, source="measured",
    about="a card of the tests",
)  # fmt: skip
LLAMA_8B = {
    "model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
}  # fmt: skip


class Clock:
    """Virtual seconds; to sleep is what makes them pass."""

    def __init__(self):
        self.now = 100.0
        self.slept = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, duration: float) -> None:
        self.slept.append(duration)
        self.now += duration


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def cost_file(tmp_path):
    file = tmp_path / "cost.json"
    file.write_text(json.dumps(COST.to_json()), encoding="utf-8")
    return str(file)


def make(device, clock, config=tiny.CONFIG, **options) -> paced.PacedEngine:
    return paced.make_paced(device, config, {EOS}, clock=clock, sleep=clock.sleep, **options)


def request(name: str, num_prompt: int = 4, num_output: int = 3, **fields) -> Request:
    return Request(name, [7] * num_prompt, num_output, **fields)


def run(engine) -> list:
    events = []
    while engine.has_unfinished():
        events += engine.step()
    return events


# Times


def test_a_step_lasts_as_long_as_the_cost_model_says(cost_file, clock):
    engine = make(cost_file, clock, prefix_caching=False)
    engine.add(request("a", 40, 3))
    engine.add(request("b", 1, 2))
    times = [event.time - 100.0 for event in run(engine) if event.request_id == "a"]
    steps = [(40, 1, 41), (0, 2, 43), (0, 1, 42)]  # prompt tokens, decoding, context
    durations = [seconds(COST.step(*step)) for step in steps]
    assert times == pytest.approx([sum(durations[: n + 1]) for n in range(3)])
    assert clock.slept == pytest.approx(durations)
    assert engine.device_busy_s == pytest.approx(sum(durations))


def test_the_device_begins_when_the_plan_is_made(cost_file, clock, monkeypatch):
    """The scheduler's time comes on top, and the device stands still meanwhile."""
    engine = make(cost_file, clock)
    plan = engine.scheduler.plan

    def slow(now):
        clock.now += 0.5
        return plan(now)

    monkeypatch.setattr(engine.scheduler, "plan", slow)
    engine.add(request("a", 4, 1))
    [event] = run(engine)
    duration = seconds(COST.step(4, 0, 4))
    assert event.time == pytest.approx(100.5 + duration)
    assert engine.device_busy_s == pytest.approx(duration)


def test_a_step_in_which_nothing_is_computed_takes_no_time(cost_file, clock):
    engine = make(cost_file, clock, rung="preemptive")
    engine.add(request("late", deadline=100.5))
    clock.now = 101.0
    [event] = engine.step()
    assert (event.finish_reason, clock.slept, engine.device_busy_s) == ("deadline", [], 0.0)


def test_what_is_swapped_costs_time(cost_file, clock):
    options = {"block_size": 4, "num_blocks": 6, "preemption": "swap", "prefix_caching": False}
    engine = make(cost_file, clock, rung="preemptive", **options)
    engine.add(request("batch", 8, 10, priority=1))
    engine.step()
    engine.add(request("chat", 16, 1))
    engine.step()  # two blocks go out to the host
    assert clock.slept[-1] == pytest.approx(seconds(COST.step(16, 0, 16, 2)))


def test_the_alarm_learns_how_late_the_system_wakes():
    clock = Clock()
    alarm = Alarm(clock, lambda duration: clock.sleep(duration + 60e-6))
    late = []
    for _ in range(200):
        moment = clock.now + 0.01
        alarm.sleep_until(moment)
        late.append(clock.now - moment)
    assert late[0] == pytest.approx(60e-6) and abs(late[-1]) < 6e-6
    alarm.sleep_until(clock.now - 1.0)  # a moment that has passed
    assert len(clock.slept) == 200


def test_steps_of_a_card_are_those_of_its_cost_model(clock):
    engine = make("H100", clock, LLAMA_8B)
    table = 128256 * 4096  # of the embeddings, of which a step reads a row per token
    parameters = 8_030_261_248  # as its model card says
    wanted = cards.for_card("H100", parameters - table, 131_072)
    assert engine.cost == wanted
    assert engine.scheduler.pool.num_blocks == cards.blocks_on("H100", parameters, 131_072)
    engine.add(request("a", 1000, 2))
    run(engine)
    steps = [wanted.step(1000, 0, 1000), wanted.step(0, 1, 1001)]
    assert clock.slept == pytest.approx([seconds(step) for step in steps])


# The schedule


def note_plans(scheduler, monkeypatch, into):
    plan = scheduler.plan

    def noted(now):
        made = plan(now)
        if made.chunks:
            chunks = [(c.request.request_id, c.start, c.num_tokens) for c in made.chunks.values()]
            into.append((now, chunks, [r.request_id for r in made.preempted]))
        return made

    monkeypatch.setattr(scheduler, "plan", noted)


def simulated(arrivals, limits, monkeypatch) -> list:
    how, host = Recompute(), None
    if limits["preemption"] == "swap":
        how, host = Swap(), LeanPool(20, 4)
    scheduler = Scheduler(
        LeanPool(limits["num_blocks"], 4), limits["max_num_batched_tokens"],
        limits["max_num_seqs"], policy=make_policy(limits["policy"]), preemption=how, host=host,
    )  # fmt: skip
    replica, steps = Replica(scheduler, COST, Watch(scheduler.pool, COST), strides=False), []
    note_plans(scheduler, monkeypatch, steps)
    Fleet([replica], RoundRobin(), Records()).run(arrivals)
    return steps


def on_paced_device(arrivals, limits, cost_file, monkeypatch) -> list:
    clock, steps = Clock(), []
    clock.now = 0.0
    if limits["preemption"] == "swap":
        limits = {**limits, "swap_memory": 20 * 4 * 512}  # bytes: 20 blocks of 4 tokens
    engine = make(
        cost_file, clock, rung="preemptive", block_size=4, prefix_caching=False, **limits
    )
    note_plans(engine.scheduler, monkeypatch, steps)
    waiting = list(enumerate(arrivals))
    while waiting or engine.has_unfinished():
        if not engine.has_unfinished():
            clock.now = max(clock.now, waiting[0][1].time)
        while waiting and waiting[0][1].time <= clock.now:
            number, due = waiting.pop(0)
            engine.add(
                request(
                    f"q{number}", due.num_prompt_tokens, due.num_output_tokens, ignore_eos=True,
                    arrival=due.time, priority=due.priority, tenant=due.tenant,
                )
            )  # fmt: skip
        engine.step()
    return steps


@pytest.mark.parametrize("seed", range(12))
def test_the_schedule_is_that_of_the_simulator(seed, cost_file, monkeypatch):
    draw = Random(seed)
    limits = {
        "num_blocks": draw.randint(20, 40),
        "max_num_seqs": draw.randint(2, 6),
        "max_num_batched_tokens": draw.choice([8, 16, 64]),
        "policy": ["fcfs", "priority", "fair"][seed % 3],
        "preemption": draw.choice(["recompute", "swap"]),
    }
    arrivals = [
        Arrival(
            time, draw.randint(1, 40), draw.randint(1, 25), draw.randint(0, 2), draw.choice("ab")
        )
        for time in sorted(draw.uniform(0, 1) for _ in range(10))
    ]  # fmt: skip
    theirs = simulated(arrivals, limits, monkeypatch)
    ours = on_paced_device(arrivals, limits, cost_file, monkeypatch)
    assert [step[1:] for step in ours] == [step[1:] for step in theirs]
    assert [step[0] for step in ours] == pytest.approx([step[0] for step in theirs])
    assert max(len(chunks) for _, chunks, _ in ours) > 1


def test_an_equal_beginning_is_found_in_the_prefix_cache(cost_file, clock):
    engine = make(cost_file, clock)
    first, second = request("a", 40, 2), request("b", 40, 2)
    engine.add(first)
    run(engine)
    engine.add(second)
    run(engine)
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 32)


def test_copies_of_a_prompt_and_an_abort(cost_file, clock):
    engine = make(cost_file, clock)
    first = request("a", 20, 5)
    copy = Request("a/1", first.prompt_token_ids, 5, copy_of="a")
    engine.add(first)
    engine.add(copy)
    engine.step()
    engine.step()  # the copy runs on the blocks of the first one's prompt
    assert engine.unfinished.keys() == {"a", "a/1"}
    assert engine.abort("a") and not engine.abort("a")
    run(engine)
    assert (first.finish_reason, copy.finish_reason) == ("abort", "length")
    assert copy.num_cached_tokens == 19
    assert engine.scheduler.pool.num_used == 0


def test_an_interrupted_step_frees_what_it_planned(cost_file, clock):
    engine = make(cost_file, clock)
    engine.add(request("a"))

    def interrupted(duration):
        raise KeyboardInterrupt

    engine.alarm.sleep = interrupted
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    assert not engine.has_unfinished() and engine.scheduler.pool.num_used == 0


# The tokens


def tokens_of(engine, name: str, **sampling) -> list[int]:
    one = Request(name, [1, 2], sampling=SamplingParams(max_tokens=30, **sampling))
    engine.add(one)
    run(engine)
    return one.output_token_ids


def test_an_answer_depends_on_the_seed_alone_and_never_ends_by_itself(cost_file, clock):
    engine, other = make(cost_file, clock), make(cost_file, clock, max_num_seqs=1, seed=5)
    answer = tokens_of(engine, "a", seed=3)
    assert len(answer) == 30 and EOS not in answer and len({*answer}) > 10
    assert tokens_of(other, "b", seed=3) == answer
    assert tokens_of(engine, "c", seed=4) != answer
    greedy = tokens_of(engine, "d", temperature=0.0)
    assert tokens_of(other, "e", temperature=0.0) == greedy


def test_answers_are_made_of_the_tokens_given(cost_file, clock):
    engine = make(cost_file, clock, token_ids=[65, 66])
    assert {*tokens_of(engine, "a", seed=1)} == {65, 66}
    engine = make(cost_file, clock, token_ids=[EOS])
    assert tokens_of(engine, "a", seed=1) == [EOS]
    for token_ids, shown in [([], "none"), ([1, 259], r"\[259\]"), ([-1], r"\[-1\]")]:
        with pytest.raises(ValueError, match=f"{shown} given; one or more .* from 0 to 258"):
            make(cost_file, clock, token_ids=token_ids)


@pytest.mark.parametrize(
    "asked",
    [
        {"logprobs": 0}, {"logprobs": 3}, {"logit_bias": {1: 2.0}}, {"min_p": 0.1},
        {"repetition_penalty": 1.1}, {"presence_penalty": 0.5}, {"frequency_penalty": 0.5},
    ],
)  # fmt: skip
def test_what_needs_logits_is_refused_by_name(asked, cost_file, clock):
    engine = make(cost_file, clock)
    [name] = asked
    with pytest.raises(ValueError, match=f"{name} is .*, and a paced device has no logits; leave"):
        tokens_of(engine, "a", **asked)
    assert not engine.has_unfinished()
    assert tokens_of(engine, "a", temperature=0.7, top_p=0.9, top_k=4, seed=1)


# What can be had


def test_every_figure_can_be_labelled(cost_file, clock, tmp_path):
    engine = make("H100", clock)
    assert (engine.label, engine.about) == (
        "modelled", "paced: H100, modelled from the NVIDIA H100 SXM data sheet, 2023",
    )  # fmt: skip
    engine = make(cost_file, clock)
    assert (engine.label, engine.about) == ("recorded", "paced: recorded, a card of the tests")
    guessed = tmp_path / "guess.json"
    guessed.write_text(json.dumps({"fixed_s": 0.1, "source": "modelled"}), encoding="utf-8")
    assert make(str(guessed), clock).label == "modelled"


def test_an_unknown_card_is_refused_with_those_there_are(clock):
    with pytest.raises(ValueError, match="no card or cost file 'H900'; cards are A100, L4, .*B200"):
        make("H900", clock)


def test_the_cache_is_what_the_card_holds_unless_told(cost_file, clock):
    def blocks(device, config=tiny.CONFIG, **options):
        return make(device, clock, config, **options).scheduler.pool.num_blocks

    assert blocks("L4", LLAMA_8B) == 2641  # (0.9 * 24e9 - 2 * 8,030,261,248) / 2**21
    assert blocks("H100") == paced.MOST_BLOCKS  # `tiny` would have 17 million
    assert blocks("H100", LLAMA_8B, num_blocks=100) == 100
    assert blocks("H100", LLAMA_8B, kv_memory="1GB") == 512
    assert blocks("H100", LLAMA_8B, kv_memory="1GB", block_size=32) == 256
    assert blocks("H100", LLAMA_8B, dtype="int8") > blocks("H100", LLAMA_8B)
    assert blocks(cost_file) == 2**30 // (16 * 512)  # two layers of 2 * 2 * 16 float32 numbers
    with pytest.raises(ValueError, match="30000 blocks .* 'H100 beside the weights' has 55,9"):
        blocks("H100", LLAMA_8B, num_blocks=30_000)
    with pytest.raises(ValueError, match="18.4996e9 parameters .* don't fit a L4"):
        blocks("L4", {**LLAMA_8B, "num_hidden_layers": 80})


def test_limits_are_those_of_servers_unless_told(cost_file, clock):
    scheduler = make("H100", clock).scheduler
    assert (scheduler.max_num_seqs, scheduler.max_num_batched_tokens) == (256, 2048)
    assert scheduler.max_model_len == 512
    options = {
        "max_num_seqs": 3, "max_num_batched_tokens": 50, "max_model_len": 100,
        "itl_target_ms": 20.0, "prefix_caching": False, "policy": "fair",
    }  # fmt: skip
    scheduler = make("H100", clock, rung="preemptive", **options).scheduler
    assert (scheduler.max_num_seqs, scheduler.max_num_batched_tokens) == (3, 50)
    assert (scheduler.max_model_len, scheduler.itl_target) == (100, 0.02)
    assert not scheduler.pool.prefix_caching
    assert type(scheduler.policy).__name__ == "Fair"
    assert scheduler.books.host.num_blocks == 2**28 // (16 * 256)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rung": "naive"}, "rung 'naive' has no paced device; continuous and preemptive"),
        ({"policy": "fair"}, "rung 'continuous' has no policy; it belongs to preemptive"),
        ({"num_blocks": 0}, "num_blocks is 0; a whole number from 1 on"),
        ({"num_blocks": 4, "kv_memory": "1GB"}, "give one of them"),
        ({"kv_memory": 10}, "kv_memory 10 is less than one block of 16 tokens, 4,096 bytes"),
        ({"max_model_len": 600}, "max_model_len is 600, the model has positions for 512"),
        ({"itl_target_ms": -1}, "itl_target_ms is -1"),
        ({"prefix_caching": "yes"}, "prefix_caching is 'yes'"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"cuda_graphs": True}, "cuda_graphs is True, and a paced device launches nothing"),
        ({"batch_size": 4}, "there is no option batch_size; there are block_size, "),
        ({"dtype": "float32"}, "dtype 'float32' on H100: accepted are bfloat16, .*16-bit"),
        ({"dtype": "int4"}, "dtype 'int4' on H100: accepted are"),
        ({"rung": "preemptive", "preemption": "drop"}, "preemption 'drop' is not known"),
        ({"rung": "preemptive", "swap_memory": 10}, "swap_memory 10 is less than one block"),
    ],
)
def test_what_cannot_be_met_is_refused_with_the_remedy(options, message, clock):
    with pytest.raises(ValueError, match=message):
        make("H100", clock, **options)


def test_swapping_that_would_cost_nothing_is_refused(clock, tmp_path):
    file = tmp_path / "cost.json"
    file.write_text(json.dumps({"fixed_s": 0.1, "source": "measured"}), encoding="utf-8")
    with pytest.raises(ValueError, match="per_swapped_block_s is 0, so preemption 'auto' would"):
        make(str(file), clock, rung="preemptive")
    assert make(str(file), clock, rung="preemptive", preemption="recompute")


def test_the_library_serves_on_a_paced_device_as_on_a_real_one():
    loaded = paced.load("tiny", "L4")
    engine = Engine(loaded, "preemptive", num_blocks=50)
    assert engine.core.about == "paced: L4, modelled from the NVIDIA L4 data sheet, 2023"
    [made] = engine.add([1, 2], SamplingParams(max_tokens=9), priority=-1)
    run(engine)
    text = tiny.tiny_tokenizer().decode(made.output_token_ids)
    assert made.finish_reason == "length" and text.replace(" ", "a").isalpha()
    with pytest.raises(ValueError, match="rung 'cached' has no paced device"):
        rungs.make("cached", loaded)
    with pytest.raises(ValueError, match="'continuous' has no policy"):
        rungs.make("continuous", loaded, policy="fair")


def test_a_folder_needs_no_weights(tmp_path, clock):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B | {"eos_token_id": [1, 2]}))
    loaded = paced.load(str(tmp_path), "H200")
    assert loaded.eos_token_ids == {1, 2}
    assert loaded.model.config.num_layers == 32
    assert not {1, 2} & {*loaded.model.token_ids}


def test_a_model_may_be_told_as_its_config_or_as_config_json():
    told = paced_model("H100", LLAMA_8B)
    assert paced_model("H100", told.config) == told


def test_no_torch_is_loaded():
    code = """
import sys
from labkit import paced
from labkit.engine.request import Request
from labkit.library import Engine
engine = Engine(paced.load("tiny", "H100"), num_blocks=20)
engine.core.add(Request("a", [1], 3))
while engine.has_unfinished():
    engine.step()
print([name for name in ("torch", "transformers", "numpy") if name in sys.modules])"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    assert ran.stdout.strip() == "[]", ran.stderr
