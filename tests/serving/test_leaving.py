"""Whatever a request does when its client gives it up, nothing of it is left."""

import json
import socket

import pytest
from serving_process import FINE, PATIENCE_S, completion, until

ENDLESS = {"max_tokens": 50_000, "ignore_eos": True}


@pytest.mark.parametrize("how", ["delete", "leave"])
@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("state", ["waiting", "running", "preempted"])
def test_whatever_its_state_a_request_that_is_given_up_holds_nothing(single, state, streaming, how):
    single.wait_until_idle()
    before = None
    if state == "waiting":
        before = single.stream("before", **ENDLESS).take(1)
    given_up = Asked(single, streaming, priority=5)
    until(lambda: given_up.view(), "its place in line")
    if state != "waiting":
        until(lambda: given_up.view()["output_tokens"] >= 2, "two tokens")
    if state == "preempted":
        before = single.stream("urgent", priority=0, **ENDLESS).take(1)
    view = given_up.view()
    assert view["state"] == state and (view["blocks"] > 0) == (state == "running")
    if how == "delete":
        answers = [single.delete(view["id"]) for _ in range(2)]
        assert [answer["cancelled"] for answer in answers] == [True, False]
        given_up.assert_was_told()
    else:
        given_up.leave()
        until(lambda: single.request(view["id"])["state"] == "finished", "the end")
    assert single.request(view["id"])["finish_reason"] == "abort"
    if before is not None:
        until(lambda: [one["id"] for one in single.requests()] == [before.id], "one request")
        assert before.take(3).error is None
        assert single.delete(before.id)["cancelled"] is True
    single.wait_until_idle()
    assert single.metric("vllm:num_requests_waiting") == 0


class Asked:
    """A request that a test gives up, streamed or not."""

    def __init__(self, server, streaming: bool, **options):
        self.server, self.streaming = server, streaming
        body = completion("given up", stream=streaming, request_id="given up", **ENDLESS, **options)
        address = server.http.base_url.host, server.http.base_url.port
        content = json.dumps(body).encode()
        self.connection = socket.create_connection(address, PATIENCE_S)
        self.connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
            b"\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content)
        )

    def view(self) -> dict | None:
        found = [one for one in self.server.requests() if one["label"] == "given up"]
        return found[0] if found else None

    def assert_was_told(self) -> None:
        answer = b"".join(iter(lambda: self.connection.recv(65536), b""))
        assert b'"code":"cancelled"' in answer
        assert answer.startswith(b"HTTP/1.1 200" if self.streaming else b"HTTP/1.1 409")
        self.connection.close()

    def leave(self) -> None:
        self.connection.close()


def test_deleting_what_has_ended_or_never_was(single):
    answer = single.complete("done")
    assert answer["choices"][0]["finish_reason"] in FINE
    assert [single.delete(answer["id"])["cancelled"] for _ in range(2)] == [False, False]
    assert single.request(answer["id"])["state"] == "finished"
    assert single.http.delete("/v1/requests/unknown").status_code == 404


def test_one_of_two_answers_may_have_ended_when_the_request_is_deleted(chain):
    stream = chain.stream(["D", "0"], max_tokens=50_000).take(20)
    assert stream.reasons() == {0: "stop"}
    assert chain.delete(stream.id)["cancelled"] is True
    assert stream.rest().error["code"] == "cancelled"
    chain.wait_until_idle()
