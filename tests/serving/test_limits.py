"""What no server should fall over: each is refused in OpenAI's shape, and names what is wrong."""

import json
import select
import socket
import types
from contextlib import suppress
from typing import get_args

import pytest
from pydantic import ValidationError
from serving_process import PATIENCE_S, completion

from labkit.serving.bodies import ChatBody, ChatMessage, CompletionBody, StreamOptions

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hi"}]
VALUES = ("text", -7, 2.5, True, {"a": 1}, [None], [[["deep"]]], 10**40)


@pytest.fixture(autouse=True)
def still_serving(shared):
    """After each of these the server serves, with the same engine, and no block is held."""
    engine = shared.engine_pid()
    yield
    assert shared.text(max_tokens=2) and shared.engine_pid() == engine
    assert shared.state()["kv_usage"] == 0 and shared.requests() == []


def refused(response, status: int = 400, param: str | None = None) -> str:
    """The message of an error, which has OpenAI's shape."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert {*error} == {"message", "type", "param", "code"} and error["type"] and error["message"]
    if param is not None:
        assert error["param"] == param, error
        assert param.split("[")[0].split(".")[-1] in error["message"], error
    return error["message"]


def raw(shared, content: bytes | str, path: str = COMPLETIONS, **headers):
    headers = {"content-type": "application/json", **headers}
    return shared.http.post(path, content=content, headers=headers)


# ---- every field of every body


def kinds(annotation) -> set[type]:
    """The plain types that an annotation has in it."""
    found = set()
    for part in get_args(annotation) or (annotation,):
        is_nested = get_args(part) and not isinstance(part, types.GenericAlias)
        found |= kinds(part) if is_nested else {getattr(part, "__origin__", part)}
    return found


def wrong_values(field) -> list:
    """Values that can't be right: of no type that the field has."""
    own = kinds(field.annotation)
    if float in own:
        own |= {int}
    return [v for v in VALUES if type(v) not in own and (Ellipsis not in own)]


def fields_of(model):
    return [
        (name, value)
        for name, field in model.model_fields.items()
        for value in wrong_values(field)
        if not is_fine(name, value)
    ]


def is_fine(name: str, value) -> bool:
    """Fields that take several kinds: these values of theirs are right."""
    return name in ("prompt", "stop", "content", "text", "role", "name") and value == "text"


@pytest.mark.parametrize("model", [CompletionBody, ChatBody], ids=["completions", "chat"])
def test_a_value_of_a_wrong_type_is_named_with_its_field(shared, model):
    path = COMPLETIONS if model is CompletionBody else CHAT
    fine = completion("hi") if model is CompletionBody else {"messages": MESSAGES}
    asked = fields_of(model)
    assert len({name for name, _ in asked}) == len(model.model_fields)
    for name, value in asked:
        answer = shared.post(path, fine | {name: value})
        refused(answer)
        assert answer.json()["error"]["param"].partition(".")[0].partition("[")[0] == name


def test_a_value_of_a_wrong_type_in_a_message_is_named_with_its_place(shared):
    asked = fields_of(ChatMessage)
    assert {name for name, _ in asked} == {*ChatMessage.model_fields}
    for name, value in asked:
        messages = [*MESSAGES, MESSAGES[0] | {name: value}]
        answer = shared.post(CHAT, {"messages": messages})
        refused(answer)
        assert answer.json()["error"]["param"].startswith(f"messages[1].{name}"), name
    for name, value in fields_of(StreamOptions):
        body = {"messages": MESSAGES, "stream": True, "stream_options": {name: value}}
        refused(shared.post(CHAT, body), param=f"stream_options.{name}")


@pytest.mark.parametrize("name", ["best", "Best", "max-tokens", "str", "body", "ключ", "a b", ""])
def test_an_unknown_field_is_named(shared, name):
    for path, fine in ((COMPLETIONS, completion("hi")), (CHAT, {"messages": MESSAGES})):
        message = refused(raw(shared, json.dumps(fine | {name: 1}), path))
        assert repr(name) in message and "not known" in message


def test_an_unknown_field_that_is_half_a_surrogate_pair(shared):
    assert "ud800" in refused(raw(shared, b'{"prompt": "hi", "\\ud800": 1}'))


@pytest.mark.parametrize("body", [
    {"messages": [{"role": "user", "content": [{}] * 1000}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}] * 1000}]},
    {"messages": [{}] * 1000},
    {"messages": [{"role": "user", "content": 5}] * 1000},
    {"messages": MESSAGES} | {f"x{number}": 1 for number in range(1000)},
    {"messages": MESSAGES, "logit_bias": dict.fromkeys(map(str, range(10_000)), "much")},
], ids=lambda body: str(body)[:60])  # fmt: skip
def test_only_the_first_thing_that_is_wrong_is_looked_for(body):
    """A body of 2 MB can have half a million of them, and all streams would wait meanwhile."""
    with pytest.raises(ValidationError) as told:
        ChatBody.model_validate(body)
    assert told.value.error_count() <= 3


def test_a_part_that_is_no_text_is_named_with_its_kind(shared):
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "see"}, picture]}]
    refused(shared.post(CHAT, {"messages": messages}), param="messages[0].content[1].image_url")
    messages[0]["content"][1] = {"type": "image_url", "text": "x"}
    message = refused(shared.post(CHAT, {"messages": messages}))
    assert "messages[0].content[1].type is 'image_url'" in message and "'text'" in message


# ---- values out of range

BAD = [
    {"max_tokens": -1}, {"max_tokens": 0}, {"max_tokens": 2**31}, {"n": 0}, {"n": -1}, {"n": 129},
    {"temperature": -0.1}, {"temperature": 1e9}, {"top_p": 0}, {"top_p": 1.01}, {"top_k": -2},
    {"min_p": -1}, {"presence_penalty": 2.5}, {"frequency_penalty": -3}, {"repetition_penalty": 0},
    {"seed": 2**63}, {"seed": 10**400}, {"priority": 10**10}, {"deadline_ms": 0},
    {"deadline_ms": -5}, {"logit_bias": {"a": 1}}, {"logit_bias": {"1": 101}},
    {"logit_bias": {"-1": 1}}, {"logit_bias": {"99999999999": 1}}, {"logit_bias": {"259": 1}},
    {"stop": ["a"] * 17}, {"stop": ""}, {"stop": [""]}, {"stop": "x" * 1001}, {"stop": [1]},
    {"stop_token_ids": [-1]}, {"stop_token_ids": [2**40]}, {"stop_token_ids": "a"},
    {"user": "u" * 257}, {"request_id": "r" * 257}, {"cache_salt": "c" * 257},
    {"min_tokens": 9, "max_tokens": 3}, {"stream_options": {"include_usage": True}},
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: str(bad)[:50])
def test_a_value_out_of_range_is_named(shared, bad):
    for path, fine in ((COMPLETIONS, {"prompt": "hi"}), (CHAT, {"messages": MESSAGES})):
        refused(shared.post(path, fine | bad), param=[*bad][0])


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
@pytest.mark.parametrize(
    "name", ["temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty",
             "repetition_penalty", "deadline_ms", "priority", "seed", "max_tokens", "n"],
)  # fmt: skip
def test_no_number_is_not_a_number(shared, name, number):
    refused(raw(shared, f'{{"prompt": "hi", "{name}": {number}}}'), param=name)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_nan_as_a_bias(shared, number):
    refused(raw(shared, f'{{"prompt": "hi", "logit_bias": {{"3": {number}}}}}'), param="logit_bias")


PROMPTS = [[259], [-1], [10**30], [2**64], [2**63], [1.5], [True], [None], [[1], "a"], [["a"]],
           None, {}, 5, ["a"] * 257, ["a", None], [[259]], [[1], [10**30]]]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: repr(prompt)[:20])
def test_a_prompt_that_is_none(shared, prompt, stream):
    asked = {"prompt": prompt, "stream": stream}
    refused(shared.post(COMPLETIONS, asked), param="prompt")


LONE = '"\\ud800"'  # JSON can carry half a surrogate pair; no UTF-8 can


@pytest.mark.parametrize("field", ["prompt", "stop", "user", "request_id", "cache_salt", "suffix"])
def test_half_a_surrogate_pair_in_a_completion(shared, field):
    fields = {"prompt": '"hi"', field: LONE}
    body = ", ".join(f'"{name}": {value}' for name, value in fields.items())
    refused(raw(shared, f"{{{body}}}"), param=field)
    refused(raw(shared, f'{{"prompt": ["fine", {LONE}]}}'), param="prompt")
    refused(raw(shared, f'{{"prompt": "fine", "stop": ["fine", {LONE}]}}'), param="stop")
    refused(raw(shared, f'{{"prompt": "fine", "model": {LONE}}}'), 404)
    refused(raw(shared, f'{{"prompt": "fine", {LONE}: 1}}'))
    assert shared.http.get("/metrics").status_code == 200


@pytest.mark.parametrize("field", ["role", "content", "name"])
def test_half_a_surrogate_pair_in_a_message(shared, field):
    message = {"role": '"user"', "content": '"hi"', field: LONE}
    body = ", ".join(f'"{name}": {value}' for name, value in message.items())
    answer = raw(shared, f'{{"messages": [{{{body}}}]}}', CHAT)
    assert refused(answer) and answer.json()["error"]["param"] == f"messages[0].{field}"


def test_min_tokens_without_max_tokens_is_no_contradiction(shared):
    answer = shared.post(CHAT, {"messages": MESSAGES, "min_tokens": 20, "temperature": 0})
    assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] >= 20


@pytest.mark.parametrize(("prompt", "reason"), [
    ([*range(300), 1.5], "entry 300 is no token id; send whole numbers from 0 on"),
    ([1, 2, -3], "entry 2 is no token id; send whole numbers from 0 on"),
    ([[1, 2], [3, -4]], "entry 1 is neither a text nor a list of token ids"),
    (["a"] * 257, "257 prompts, at most 256 fit; send fewer"),
], ids=["float", "below 0", "in a list", "many"])  # fmt: skip
def test_what_of_a_prompt_is_wrong_is_told(shared, prompt, reason):
    assert reason in refused(shared.post(COMPLETIONS, completion(prompt)), param="prompt")


# ---- bodies that are none

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"nonsense", b"[]", b"null", b'"text"', b"5", b"{}", b'{"a": "a",}', b"\xff\xfe",
     b'{"prompt": "\xff"}', DEEP.encode(), f'{{"prompt": {DEEP}}}'.encode(),
     b'{"prompt": ' + b"9" * 5000 + b"}", b'{"prompt": "a", "x": ' + b'{"a":' * 50_000,
     b'{"prompt": "a"}{}', b"\x00" * 100],
    ids=lambda content: repr(content[:20]),
)  # fmt: skip
def test_a_body_that_is_no_request(shared, content):
    for path in (COMPLETIONS, CHAT):
        refused(raw(shared, content, path))


@pytest.mark.parametrize(("content", "reason"), [
    (b'{"prompt": "\xff"}', "byte 12 is not UTF-8"), (DEEP.encode(), "it is nested too deep"),
    (b'{"prompt": ' + b"9" * 5000 + b"}", "a number in it has too many digits"),
], ids=["bytes", "depth", "digits"])  # fmt: skip
def test_why_a_body_cannot_be_read_is_told(shared, content, reason):
    message = refused(raw(shared, content))
    assert message == f"the body is no JSON: {reason}; send one JSON object"


def megabytes(count: int):
    for _ in range(count):
        yield b"x" * 2**20


@pytest.mark.parametrize("how", ["with its length", "in chunks", "almost JSON"])
def test_a_body_of_50_megabytes_is_413(shared, how):
    content = b"x" * (50 * 2**20) if how == "with its length" else megabytes(50)
    if how == "almost JSON":
        content = b'{"prompt": "' + b"x" * (50 * 2**20) + b'"}'
    message = refused(raw(shared, content), 413, param="body")
    assert "body" in message and "2,097,152" in message


def test_a_long_prompt_within_the_limit_is_refused_by_its_tokens(shared):
    message = refused(shared.post(COMPLETIONS, completion("x" * 1_900_000)), param="prompt")
    assert "1900000" in message
    content = [{"role": "user", "content": "x" * 1_900_000}]
    refused(shared.post(CHAT, {"messages": content}))


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_another_content_type_is_415(shared, kind):
    answer = raw(shared, json.dumps(completion("hi")), **{"content-type": kind})
    assert answer.json()["error"]["param"] == "Content-Type"
    refused(answer, 415)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", COMPLETIONS, 405), ("PUT", CHAT, 405), ("DELETE", "/v1/models", 405),
     ("PATCH", "/v1/requests/x", 405), ("DELETE", "/health", 405), ("OPTIONS", CHAT, 405),
     ("GET", "/v1/nothing", 404), ("POST", "/v1/embeddings", 404), ("GET", "/page/../api.py", 404),
     ("GET", "/page/%2e%2e/api.py", 404), 
     ("GET", "/v1/requests/%00", 404), ("GET", "/v1/models/%ff", 404), ("GET", "/docs", 404)],
)  # fmt: skip
def test_another_method_or_path(shared, method, path, status):
    headers = {"content-type": "application/json"}
    refused(shared.http.request(method, path, headers=headers, follow_redirects=True), status)


# ---- hosts and keys


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "a b"]
)
def test_a_page_of_another_host_hears_nothing(shared, host):
    for path in ("/v1/requests", "/live", "/", "/health"):
        answer = shared.http.get(path, headers={"host": host})
        assert refused(answer, 403) and answer.json()["error"]["param"] == "Host"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "[::1]:80", "127.0.0.1", "10.0.0.7"])
def test_this_machine_has_many_names(shared, host):
    assert shared.http.get("/v1/models", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "sent",
    [b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\n"
     b"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: -5\r\n\r\n{}",
     b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100],
    ids=["nonsense", "version", "length", "TLS"],
)  # fmt: skip
def test_what_is_no_http_is_400(shared, sent):
    address = shared.http.base_url.host, shared.http.base_url.port
    with socket.create_connection(address, PATIENCE_S) as connection:
        connection.sendall(sent)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400") and json.loads(body)["error"]["message"]


def test_headers_have_a_bound(shared):
    address = shared.http.base_url.host, shared.http.base_url.port
    with socket.create_connection(address, PATIENCE_S) as connection, suppress(ConnectionError):
        connection.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ")
        for _ in range(4096):
            connection.sendall(b"y" * 1024)
            if select.select([connection], [], [], 0)[0]:
                break
        else:
            raise AssertionError("4 MB of one header were taken")
        assert connection.recv(65536).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(("head", "status"), [
    ("content-length: 50000000", 413), ("content-type: text/plain\r\ncontent-length: 9", 415),
    ("host: a.example\r\ncontent-length: 9", 403),
    ("transfer-encoding: chunked\r\n\r\n300000\r\n" + "x" * 0x300000, 413),
], ids=["length", "kind", "host", "chunks"])  # fmt: skip
def test_who_is_refused_and_sends_no_body_hears_of_it_all_the_same(shared, head, status):
    address = shared.http.base_url.host, shared.http.base_url.port
    given = f"POST {COMPLETIONS} HTTP/1.1\r\n{head}\r\n"
    if "host" not in head:
        given = given.replace("\r\n", "\r\nhost: localhost\r\n", 1)
    if "content-type" not in head:
        given = given.replace("\r\n", "\r\ncontent-type: application/json\r\n", 1)
    with socket.create_connection(address, PATIENCE_S) as connection:
        connection.sendall(given.encode() + (b"" if "chunked" in head else b"\r\n"))
        answer = b"".join(iter(lambda: connection.recv(65536), b""))  # to the connection's end
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())


def test_a_key_is_needed_where_one_is_set(server, shared):
    keyed = server("--api-key", "sesame", "--max-num-seqs", "2", "--num-blocks", "64")
    closed = [("GET", "/v1/models"), ("GET", "/v1/requests"), ("DELETE", "/v1/requests/x"),
              ("GET", "/metrics"), ("GET", "/live"), ("POST", COMPLETIONS), ("POST", CHAT),
              ("GET", "/v1/nothing")]  # fmt: skip
    wrong = ["", "sesame", "Bearer", "Bearer Sesame", "Bearer sesame2", "Basic sesame",
             "Bearer sésame".encode()]  # fmt: skip
    for method, path in closed:
        for key in [None, *wrong]:
            headers = {} if key is None else {"authorization": key}
            answer = keyed.http.request(method, path, headers=headers, json={})
            refused(answer, 401)
            assert answer.json()["error"]["code"] == "invalid_api_key"
    right = {"authorization": "Bearer sesame"}
    assert keyed.post(COMPLETIONS, completion("hello"), **right).json()["choices"]
    assert keyed.http.get("/v1/models", headers=right | {"host": "any.example"}).status_code == 200
    for path in ("/", "/health", "/ready", "/openapi.json", "/page/main.js"):
        assert keyed.http.get(path).status_code == 200, path
