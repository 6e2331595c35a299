"""What both models of the repository share: a request's tensors in, its tokens out.

Runs in the server's Python. `pb_utils` is the module that the Python backend gives each model.
"""

import itertools
import json
import threading
import time
from contextlib import suppress

import numpy as np
import triton_python_backend_utils as pb_utils

from labkit.fleet.triton_server.engine_link import EngineFailed, EngineLink
from labkit.model.sampling_params import SamplingParams
from labkit.serving.messages import (
    Abort,
    Accepted,
    Add,
    EngineConfig,
    FromEngine,
    Refused,
    Step,
    Token,
)

# What the server makes an HTTP status of. `pb_utils` has its classes only when a model is loaded.
INTERNAL = "INTERNAL"  # 500
INVALID = "INVALID_ARG"  # 400: the request's own fault
UNAVAILABLE = "UNAVAILABLE"  # 503: not now
CANCELLED = "CANCELLED"
# A load alone does nothing while the server holds the model for loaded and its files are as before.
RELOAD = "unload the model and load it again (POST v2/repository/models/NAME/unload, then /load)"


class Answer:
    """One request on its way. Its tokens go out one by one where it `streams`, else at its end."""

    def __init__(self, request, streams: bool):
        self.sender = request.get_response_sender() if streams else None
        self.token_ids: list[int] = []
        self.finish_reason: str | None = None
        self.error = None  # a TritonError
        self.is_lost = False  # nothing reaches its client any more
        self.ended = threading.Event()

    def take(self, token: Token) -> None:
        """A new token, or the end without one."""
        if token.token_id is not None:
            self.token_ids.append(token.token_id)
        if token.finish_reason == "error":
            return self.fail(token.error or "the engine failed")
        self.finish_reason = token.finish_reason
        if self.sender is not None:
            new = [] if token.token_id is None else [token.token_id]
            self.send(response(new, token.finish_reason))
        if token.finish_reason is not None:
            self.ended.set()

    def fail(self, reason: str, code: str = INTERNAL) -> None:
        """Ends it with an error, unless it has ended. The server makes a status of `code`."""
        if self.ended.is_set():
            return
        self.error = pb_utils.TritonError(reason, getattr(pb_utils.TritonError, code))
        self.finish_reason = "error"
        if self.sender is not None:
            self.send(self.whole())
        self.ended.set()

    def send(self, one) -> None:
        """One response. It may not arrive; the other answers have to go on."""
        last = self.finish_reason is not None
        flags = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if last else 0
        try:
            self.sender.send(one, flags)
        except Exception:  # the backend has several kinds
            self.is_lost = True

    def is_cancelled(self) -> bool:
        """Whether the client has left, as far as the server knows."""
        return self.is_lost or (self.sender is not None and self.sender.is_cancelled())

    def whole(self):
        """The whole answer in one response."""
        if self.error is not None:
            return pb_utils.InferenceResponse(error=self.error)
        return response(self.token_ids, self.finish_reason)


class Model:
    """The engine and its open answers. A model of the repository says how `execute` asks it."""

    def __init__(self, args: dict):
        described = json.loads(args["model_config"])
        told = {key: one["string_value"] for key, one in described["parameters"].items()}
        self.streams = described.get("model_transaction_policy", {}).get("decoupled", False)
        self.open: dict[str, Answer] = {}
        self.numbers = itertools.count()
        self.gone = ""  # why there is no engine any more
        config = EngineConfig(**json.loads(told["engine"]))
        self.link = EngineLink(config, told["python"], self.on_message, self.on_end)
        self.info = self.link.start()

    def ask(self, requests) -> list[Answer]:
        """Sends requests to the engine in one message; their answers fill as tokens come."""
        answers, asked = [], []
        for request in requests:
            name, answer = f"request-{next(self.numbers)}", Answer(request, self.streams)
            answers.append(answer)
            try:
                asked.append(add_of(request, name))
                self.open[name] = answer
            except ValueError as error:
                answer.fail(str(error), INVALID)
        if self.gone:
            self.on_end(self.gone)
        elif asked:
            self.send(asked)
        return answers

    def send(self, asked: list[Add]) -> None:
        try:
            self.link.send(asked)
        except EngineFailed as error:
            for one in asked:
                self.fail(one.request_id, str(error), UNAVAILABLE)

    def on_message(self, message: FromEngine) -> None:
        """What the engine says, in the thread that listens to it."""
        match message:
            case Step():
                self.on_step(message)
            case Refused():
                code = UNAVAILABLE if message.busy else INVALID
                self.fail(message.request_id, message.reason, code)
            case Accepted():
                pass

    def on_step(self, step: Step) -> None:
        left = []
        for token in step.tokens:
            answer = self.open.get(token.request_id)
            if answer is None:  # it was aborted, and had a token in this step
                continue
            answer.take(token)
            if answer.ended.is_set():
                self.open.pop(token.request_id, None)
            elif answer.is_cancelled():
                self.fail(token.request_id, "the client has left", CANCELLED)
                left.append(token.request_id)
        if left:
            with suppress(EngineFailed):  # one that takes no messages; what is open waits with it
                self.link.send([Abort(left)])

    def on_end(self, reason: str) -> None:
        """The engine is gone: everybody who waits is told."""
        self.gone = reason
        for name in [*self.open]:
            self.fail(name, f"{reason}; {RELOAD}", UNAVAILABLE)

    def fail(self, name: str, reason: str, code: str) -> None:
        """Ends an open answer. Two threads may want to, when the engine ends."""
        answer = self.open.pop(name, None)
        if answer is not None:
            answer.fail(reason, code)

    def close(self) -> None:
        self.link.close()
        for name in [*self.open]:
            self.fail(name, "the model is being unloaded", UNAVAILABLE)


def add_of(request, name: str) -> Add:
    """A request's tensors as the engine is asked. ValueError for what it can't be asked."""
    limit = int(tensor(request, "max_tokens")[0])
    ignore_eos = tensor(request, "ignore_eos")
    params = SamplingParams(
        max_tokens=limit, temperature=0.0, ignore_eos=bool(ignore_eos is not None and ignore_eos[0])
    )
    return Add(name, tensor(request, "token_ids").tolist(), params, time.monotonic())


def tensor(request, name: str):
    """An input as a flat array, without the batch's dimension; None where it isn't given."""
    found = pb_utils.get_input_tensor_by_name(request, name)
    return None if found is None else found.as_numpy().reshape(-1)


def response(token_ids: list[int], finish_reason: str | None):
    """Tokens as the server sends them on; the reason is empty until the last."""
    tokens = np.array(token_ids, np.int32).reshape(1, -1)
    reason = np.array([[finish_reason or ""]], np.object_)
    return pb_utils.InferenceResponse(
        [pb_utils.Tensor("output_ids", tokens), pb_utils.Tensor("finish_reason", reason)]
    )
