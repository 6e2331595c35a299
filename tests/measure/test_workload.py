"""Workloads: read from a file with the number of every wrong line, or made from a seed."""

import json

import pytest

from labkit.measure import workload
from labkit.measure.workload import WorkloadError, WorkloadRequest
from labkit.model.loading import load_decoder

GOOD = {"id": "a", "prompt": "Hi", "max_tokens": 4}


@pytest.fixture
def written(tmp_path):
    """A function that writes lines to a workload file: texts as they are, dicts as JSON."""

    def write(*lines):
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path = tmp_path / "w.jsonl"
        path.write_text("\n".join(texts) + "\n", encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="module")
def tiny():
    return load_decoder("tiny")


def test_every_field_is_read(written):
    line = {
        "id": "b", "prompt_token_ids": [1, 2], "max_tokens": 8, "ignore_eos": True,
        "arrival_s": 0.5, "priority": -1, "tenant": "t", "deadline_ms": 250,
    }  # fmt: skip
    first, second = workload.read(written(GOOD, "", line))
    assert first == WorkloadRequest("a", 4, prompt="Hi")
    assert second == WorkloadRequest(
        "b", 8, None, (1, 2), ignore_eos=True, arrival_s=0.5, priority=-1, tenant="t",
        deadline_ms=250,
    )  # fmt: skip


def test_a_file_of_windows_is_read_too(tmp_path):
    path = tmp_path / "w.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(GOOD).encode() + b"\r\n")
    assert [request.id for request in workload.read(path)] == ["a"]


@pytest.mark.parametrize(
    "line, told",
    [
        ("{", "no JSON"),
        ("[1]", "list"),
        ("[" * 100_000, "no JSON"),
        (GOOD | {"max_token": 3}, "'max_token' is not known"),
        ({"id": "b", "prompt": "x"}, "'max_tokens' is missing"),
        (GOOD | {"id": ""}, "id is ''"),
        (GOOD | {"id": "first"}, "'first' is there already"),
        (GOOD | {"max_tokens": 0}, "max_tokens is 0"),
        (GOOD | {"max_tokens": True}, "max_tokens is True"),
        (GOOD | {"max_tokens": 1.5}, "max_tokens is 1.5"),
        (GOOD | {"ignore_eos": 1}, "ignore_eos is 1"),
        (GOOD | {"arrival_s": -1}, "arrival_s is -1"),
        (GOOD | {"arrival_s": float("nan")}, "arrival_s is nan"),
        (GOOD | {"priority": "high"}, "priority is 'high'"),
        (GOOD | {"tenant": None}, "tenant is None"),
        (GOOD | {"deadline_ms": 0}, "deadline_ms is 0"),
        (GOOD | {"prompt_token_ids": [1]}, "both of prompt and prompt_token_ids"),
        ({"id": "b", "max_tokens": 1}, "neither of prompt"),
        ({"id": "b", "max_tokens": 1, "prompt_token_ids": []}, "prompt_token_ids is []"),
        ({"id": "b", "max_tokens": 1, "prompt_token_ids": [-1]}, "prompt_token_ids is [-1]"),
        ({"id": "b", "max_tokens": 1, "prompt_token_ids": "12"}, "prompt_token_ids is '12'"),
        (GOOD | {"prompt": 7}, "prompt is 7"),
        (GOOD | {"prompt": "\ud800"}, "half characters"),
    ],
)
def test_a_wrong_line_is_told_with_its_number(written, line, told):
    with pytest.raises(WorkloadError) as failed:
        workload.read(written(GOOD | {"id": "first"}, line))
    assert "line 2: " in str(failed.value) and told in str(failed.value)
    assert "\n" not in str(failed.value)


def test_a_line_that_is_no_utf8_is_told_with_its_number(tmp_path):
    path = tmp_path / "w.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b"\n\xff\n")
    with pytest.raises(WorkloadError, match="line 2: "):
        workload.read(path)


def test_an_empty_file_and_a_missing_one(written, tmp_path):
    with pytest.raises(WorkloadError, match="0 requests"):
        workload.read(written(""))
    with pytest.raises(WorkloadError, match="can't be read"):
        workload.read(tmp_path / "none.jsonl")


def test_a_prompt_is_a_user_message_and_token_ids_stay_as_they_are(tiny):
    text = WorkloadRequest("a", 4, prompt="Hi", arrival_s=2.0)
    ids = WorkloadRequest("b", 5, prompt_token_ids=(7, 8), ignore_eos=True)
    first, second = workload.to_requests([text, ids], tiny)
    assert first.prompt_token_ids == tiny.encode_chat("Hi")
    assert (first.arrival, first.max_tokens, first.sampling.temperature) == (2.0, 4, 0.0)
    assert (second.prompt_token_ids, second.max_tokens, second.ignore_eos) == ([7, 8], 5, True)


def test_what_the_model_can_not_do_is_refused_by_name(tiny):
    with pytest.raises(WorkloadError, match="'a'.*259, and tiny knows the tokens 0 to 258"):
        workload.to_requests([WorkloadRequest("a", 1, prompt_token_ids=(259,))], tiny)
    with pytest.raises(WorkloadError, match="'a'.*make 513, tiny has positions for 512"):
        workload.to_requests([WorkloadRequest("a", 512, prompt_token_ids=(1,))], tiny)


def test_the_built_in_workload_depends_on_its_seed_alone(tiny):
    first = workload.synthetic(0)
    assert first == workload.synthetic(0) != workload.synthetic(1)
    lengths = sorted(request.max_tokens for request in first)
    assert (len(first), lengths[0], lengths[-1]) == (16, 8, 96)
    assert all(request.ignore_eos for request in first)
    assert len({len(request.prompt) > 100 for request in first}) == 2
    assert len(workload.to_requests(first, tiny)) == 16


def test_the_built_in_workload_may_be_smaller():
    assert [r.max_tokens for r in workload.synthetic(0, 1)] == [8]
    assert max(r.max_tokens for r in workload.synthetic(0, 4, longest=12)) == 12
