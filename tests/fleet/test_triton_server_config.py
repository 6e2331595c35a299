"""config.pbtxt and the model repository of Triton Inference Server."""

import ast
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.fleet.triton_server.model_config import (
    DynamicBatching,
    ModelConfig,
    QueuePolicy,
    Tensor,
)
from labkit.fleet.triton_server.pbtxt import to_pbtxt
from labkit.fleet.triton_server.repository import Served, config_of, write

TOKENS = re.compile(r'#[^\n]*|"(?:\\.|[^"\\])*"|[{}\[\],:]|[^\s{}\[\],:#"]+')


def parse(text):
    """Protobuf's text format as nested dicts of lists; enough of it for what labkit writes."""
    words = [word for word in TOKENS.findall(text) if not word.startswith("#")]

    def scalar(word):
        if word.startswith('"'):
            return json.loads(word)
        return {"true": True, "false": False}.get(word, int(word) if is_whole(word) else word)

    def message():
        found = {}
        while words and words[0] != "}":
            name = words.pop(0)
            if words[0] == "{":
                words.pop(0)
                value = message()
                assert words.pop(0) == "}"
            else:
                assert words.pop(0) == ":"
                value = listed() if words[0] == "[" else scalar(words.pop(0))
            found.setdefault(name, []).append(value)
        return found

    def listed():
        words.pop(0)
        values = []
        while (word := words.pop(0)) != "]":
            if word != ",":
                values.append(scalar(word))
        return values

    found = message()
    assert not words
    return found


def is_whole(word):
    return re.fullmatch(r"-?\d+", word) is not None


def one(found, *path):
    """The only value at a path."""
    for name in path:
        (found,) = found[name]
    return found


def test_the_dynamic_batcher_gets_all_that_it_is_told():
    served = Served("chat", "dynamic", streams=False, max_num_seqs=4, max_queue_delay_s=0.05,
                    queue=QueuePolicy(max_queue_size=2, timeout_s=1.5))  # fmt: skip
    found = parse(to_pbtxt(config_of(served, "/usr/bin/python3")))
    assert one(found, "name") == "chat" and one(found, "backend") == "python"
    assert one(found, "max_batch_size") == 4
    batching = one(found, "dynamic_batching")
    assert one(batching, "preferred_batch_size") == [4]
    assert one(batching, "max_queue_delay_microseconds") == 50_000
    assert one(batching, "priority_levels") == one(batching, "default_priority_level") == 2
    assert one(batching, "default_queue_policy") == {
        "timeout_action": ["REJECT"],
        "default_timeout_microseconds": [1_500_000],
        "allow_timeout_override": [True],
        "max_queue_size": [2],
    }
    assert found["input"][0]["allow_ragged_batch"] == [True]  # or only equal lengths are batched
    assert "model_transaction_policy" not in found


def test_continuous_batching_leaves_batches_to_the_engine_and_streams():
    found = parse(to_pbtxt(config_of(Served("chat"))))
    assert one(found, "max_batch_size") == 0 and "dynamic_batching" not in found
    assert one(found, "model_transaction_policy", "decoupled") is True


def test_every_field_of_the_batcher_says_what_it_does():
    text = to_pbtxt(config_of(Served("chat", "dynamic")))
    inner = text[text.index("dynamic_batching {") : text.index("instance_group {")]
    plain = [line for line in inner.splitlines() if ": " in line and "#" not in line]
    assert not plain


def test_a_level_may_have_a_policy_of_its_own():
    urgent = QueuePolicy(max_queue_size=8, timeout_action="DELAY")
    batching = DynamicBatching((4,), 0.01, False, 3, 2, QueuePolicy(), {1: urgent})
    config = ModelConfig("m", [], [], max_batch_size=4, dynamic_batching=batching)
    level = one(parse(to_pbtxt(config)), "dynamic_batching", "priority_queue_policy")
    assert one(level, "key") == 1 and one(level, "value", "timeout_action") == "DELAY"


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: QueuePolicy(max_queue_size=-1), "max_queue_size is -1"),
        (lambda: QueuePolicy(timeout_action="WAIT"), "'WAIT'; choose one of REJECT, DELAY"),
        (lambda: DynamicBatching(priority_levels=2), "priority level 0 is none of the 2"),
        (lambda: DynamicBatching((), 0, False, 2, 3), "priority level 3 is none of the 2"),
        (lambda: ModelConfig("m", [], [], dynamic_batching=DynamicBatching()), "max_batch_size"),
        (
            lambda: ModelConfig("m", [], [], 4, dynamic_batching=DynamicBatching((8,))),
            "preferred_batch_size has 8, more than max_batch_size 4",
        ),
        (lambda: ModelConfig("m", [], [], instances=0), "instances is 0"),
        (lambda: Served("m", "static"), "'static'; choose dynamic or continuous"),
        (lambda: Served("m", "continuous", streams=False), "streams=False is for batching"),
    ],
)
def test_what_the_server_would_refuse_is_refused_with_the_remedy(make, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        make()


policies = st.builds(
    QueuePolicy,
    st.integers(0, 10**6),
    st.integers(0, 10**9).map(lambda n: n / 1_000_000),
    st.sampled_from(["REJECT", "DELAY"]),
    st.booleans(),
)


@given(
    st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 64), policies,
    st.integers(0, 10**7), st.lists(st.integers(-1, 99), max_size=3), st.booleans(),
)  # fmt: skip
def test_every_value_comes_back_out_of_the_text(text, size, policy, delay, dims, decoupled):
    config = ModelConfig(
        "m", [Tensor("in", "TYPE_INT32", tuple(dims))], [], size, decoupled,
        DynamicBatching((size,), delay / 1_000_000, default_queue_policy=policy),
        parameters={"key": text},
    )  # fmt: skip
    found = parse(to_pbtxt(config))
    assert one(found, "parameters", "value", "string_value") == text
    assert one(found, "input", "dims") == dims
    batching = one(found, "dynamic_batching")
    assert one(batching, "max_queue_delay_microseconds") == delay
    kept = one(batching, "default_queue_policy")
    assert kept["default_timeout_microseconds"] == [round(policy.timeout_s * 1_000_000)]
    assert kept["max_queue_size"] == [policy.max_queue_size]
    assert ("model_transaction_policy" in found) == decoupled


def test_the_repository_has_a_folder_for_each_model_that_python_can_read(tmp_path):
    write(tmp_path, [Served("a", "dynamic"), Served("b")], "/usr/bin/python3")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    for name, words in (("a", "answer.ended.wait()"), ("b", "decoupled")):
        source = (tmp_path / name / "1" / "model.py").read_text("utf-8")
        ast.parse(source)
        assert words in source and "class TritonPythonModel" in source
        parameters = parse((tmp_path / name / "config.pbtxt").read_text("utf-8"))["parameters"]
        told = {one(p, "key"): one(p, "value", "string_value") for p in parameters}
        assert told["python"] == "/usr/bin/python3"
        assert json.loads(told["engine"])["rung"] == {"a": "paged", "b": "continuous"}[name]


def test_writing_again_leaves_nothing_of_the_model_before(tmp_path):
    write(tmp_path, [Served("a")])
    (tmp_path / "a" / "1" / "old.py").touch()
    write(tmp_path, [Served("a", "dynamic")])
    assert [path.name for path in (tmp_path / "a" / "1").iterdir()] == ["model.py"]
