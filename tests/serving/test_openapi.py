"""The OpenAPI document: whole, and true of the running server, as schemathesis sees it."""

import json
import os
import re
import subprocess
import sys

import pytest
from fastapi.routing import APIRoute

from labkit.serving import options
from labkit.serving.api import create_app
from labkit.serving.bodies import ChatBody, CompletionBody
from labkit.serving.schema import RequestView
from labkit.serving.service import Service
from labkit.serving.text import TextSide

CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance",
    "response_schema_conformance", "negative_data_rejection",
)  # fmt: skip
ROUTES = {
    ("get", "/v1/models"), ("get", "/v1/models/{model}"), ("post", "/v1/completions"),
    ("post", "/v1/chat/completions"), ("get", "/v1/requests"), ("get", "/v1/requests/{request_id}"),
    ("delete", "/v1/requests/{request_id}"), ("get", "/health"), ("get", "/ready"),
    ("get", "/metrics"),
}  # fmt: skip
OF_THE_PAGE = {"/", "/page/{name}", "/live"}
OPENAI = {
    "model", "n", "stop", "seed", "temperature", "top_p", "max_tokens", "logprobs", "stream",
    "stream_options", "user", "logit_bias", "presence_penalty", "frequency_penalty",
}  # fmt: skip
BEYOND = {
    "priority", "deadline_ms", "ignore_eos", "top_k", "min_p", "repetition_penalty", "min_tokens",
    "stop_token_ids", "skip_special_tokens", "cache_salt", "request_id",
}  # fmt: skip
REQUEST = {
    "id", "label", "endpoint", "model", "tenant", "priority", "deadline_s", "state",
    "finish_reason", "streaming", "client", "age_s", "queue_s", "ttft_s", "prompt_tokens",
    "cached_tokens", "output_tokens", "blocks", "host_blocks", "preemptions", "unsent_tokens",
}  # fmt: skip


@pytest.fixture(scope="module")
def app():
    return create_app(Service(options.parse(["--model", "tiny"]), TextSide.load("tiny")))


@pytest.fixture(scope="module")
def document(app):
    return app.openapi()


@pytest.fixture(scope="module")
def short(for_all):
    """Answers of a few tokens: what is asked at random may want hundreds of answers."""
    return for_all("--max-model-len", "32", "--num-blocks", "1024", "--max-num-seqs", "128")


def fuzz(location: str, folder, *arguments) -> subprocess.CompletedProcess:
    """Runs schemathesis on the document at `location`."""
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", location, "--checks", ",".join(CHECKS),
        "--seed", "1", "--phases", "coverage,fuzzing", "--request-timeout", "120",
        "--generation-database", "none", "--continue-on-failure", "--suppress-health-check", "all",
        "--no-color", *arguments,
    ]  # fmt: skip
    variables = {**os.environ, "PYTHONIOENCODING": "utf-8"}  # labkit's own names a handler too
    return subprocess.run(
        command, cwd=folder, capture_output=True, encoding="utf-8", errors="replace", env=variables
    )


def all_passed(found, operations: int) -> bool:
    selected = re.search(r"Operations:\s+(\d+) selected", found.stdout)
    passed = re.search(r"(\d+) generated, \1 passed", found.stdout)
    return found.returncode == 0 and int(selected[1]) == operations and bool(passed)


def test_random_requests_find_nothing_that_the_document_does_not_promise(short, tmp_path):
    found = fuzz(f"{short.url}/openapi.json", tmp_path, "--max-examples", "50")
    assert all_passed(found, len(ROUTES)), found.stdout + found.stderr + short.said()[-2000:]
    assert short.metric("vllm:request_success_total") > 50  # not all of it was refused
    assert "Traceback" not in short.said()
    short.wait_until_idle()


def test_nor_do_those_about_a_request_that_there_is(short, tmp_path):
    known, path = short.complete(max_tokens=2)["id"], "/v1/requests/{request_id}"
    (tmp_path / "schemathesis.toml").write_text(
        f'[parameters]\n"path.request_id" = "{known}"\n', encoding="utf-8"
    )
    found = fuzz(
        f"{short.url}/openapi.json", tmp_path, "--max-examples", "10", "--include-path", path
    )
    assert all_passed(found, 2), found.stdout
    assert not re.search(r"\b404\b", found.stdout)  # a port may contain one


def test_a_status_that_is_not_in_the_document_would_be_found(short, tmp_path):
    document, path = short.http.get("/openapi.json").json(), "/v1/models/{model}"
    del document["paths"][path]["get"]["responses"]["404"]
    (tmp_path / "less.json").write_text(json.dumps(document), encoding="utf-8")
    found = fuzz("less.json", tmp_path, "--url", short.url, "--include-path", path)
    assert found.returncode == 1 and "Undocumented status code" in found.stdout, found.stdout


def test_every_route_is_listed(app, document):
    listed = {(m, path) for path, methods in document["paths"].items() for m in methods}
    there = {
        (method.lower(), route.path.replace(":path}", "}"))
        for route in app.routes
        if isinstance(route, APIRoute) and route.path not in OF_THE_PAGE
        for method in route.methods
    }
    assert listed == there == ROUTES


def body_of(document, path: str) -> dict:
    content = document["paths"][path]["post"]["requestBody"]["content"]
    name = content["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
    return document["components"]["schemas"][name]


@pytest.mark.parametrize(
    "path, body, own, needed",
    [
        ("/v1/completions", CompletionBody, {"prompt", "echo", "suffix", "best_of"}, "prompt"),
        (
            "/v1/chat/completions", ChatBody,
            {"messages", "max_completion_tokens", "top_logprobs", "tools", "response_format"},
            "messages",
        ),
    ],
)  # fmt: skip
def test_every_field_that_a_body_accepts_is_listed(document, path, body, own, needed):
    schema = body_of(document, path)
    assert {*schema["properties"]} == {*body.model_fields} >= OPENAI | BEYOND | own
    assert schema["required"] == [needed] and schema["additionalProperties"] is False


def test_limits_of_sampling_are_in_the_document(document):
    fields = body_of(document, "/v1/completions")["properties"]
    assert fields["n"]["anyOf"][0] == {"type": "integer", "minimum": 1, "maximum": 128}
    assert fields["temperature"]["anyOf"][0] == {"type": "number", "minimum": 0, "maximum": 100}
    assert fields["top_p"]["anyOf"][0]["exclusiveMinimum"] == 0


def test_what_is_told_of_a_request_is_listed(document):
    schema = document["components"]["schemas"]["RequestView"]
    assert {*schema["properties"]} == {*RequestView.model_fields} >= REQUEST


def test_a_key_is_in_the_document_where_one_is_needed(document):
    assert "securitySchemes" not in document["components"]
    asked = options.parse(["--model", "tiny", "--api-key", "K"])
    keyed = create_app(Service(asked, TextSide.load("tiny"))).openapi()
    assert keyed["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    wants = {path: one[next(iter(one))]["security"] for path, one in keyed["paths"].items()}
    assert {path for path, security in wants.items() if not security} == {"/health", "/ready"}
    assert wants["/v1/completions"] == wants["/metrics"] == [{"key": []}]


def test_every_error_has_openais_shape(document):
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert "422" not in operation["responses"]
            for status, response in operation["responses"].items():
                if status >= "400" and path not in ("/health", "/ready"):
                    (content,) = response["content"].values()
                    assert content["schema"] == {"$ref": "#/components/schemas/ErrorBody"}


def test_answers_that_are_streamed_are_listed(document):
    for path in ("/v1/completions", "/v1/chat/completions"):
        content = document["paths"][path]["post"]["responses"]["200"]["content"]
        assert {*content} == {"application/json", "text/event-stream"}
        assert content["text/event-stream"]["schema"]["required"] == ["data"]
