"""What the Python backend gives a model of Triton Inference Server, as far as labkit's use it."""

import sys
import types
from dataclasses import dataclass, field

import numpy as np

NAME = "triton_python_backend_utils"


class TritonError(Exception):
    INTERNAL, INVALID_ARG = "internal", "invalid"
    UNAVAILABLE, CANCELLED = "unavailable", "cancelled"

    def __init__(self, message, code=INTERNAL):
        super().__init__(message)
        self.message, self.code = message, code


class Tensor:
    def __init__(self, name, values):
        self.name, self.values = name, values

    def as_numpy(self):
        return self.values


@dataclass
class InferenceResponse:
    output_tensors: list = field(default_factory=list)
    error: TritonError | None = None

    def tokens(self):
        return self.output_tensors[0].as_numpy().reshape(-1).tolist()

    def reason(self):
        return self.output_tensors[1].as_numpy().reshape(-1)[0]


class Sender:
    """Keeps what is sent, and refuses what comes after the end, as the real one does."""

    def __init__(self):
        self.sent, self.is_over, self.has_left = [], False, False

    def send(self, response, flags=0):
        assert not self.is_over
        self.sent.append(response)
        self.is_over = bool(flags)

    def is_cancelled(self):
        return self.has_left


class Request:
    def __init__(self, token_ids, max_tokens, ignore_eos=None):
        given = {"token_ids": [token_ids], "max_tokens": [[max_tokens]]}
        self.inputs = {name: Tensor(name, np.array(v, np.int32)) for name, v in given.items()}
        if ignore_eos is not None:
            self.inputs["ignore_eos"] = Tensor("ignore_eos", np.array([[ignore_eos]]))
        self.sender = Sender()

    def get_response_sender(self):
        return self.sender


def module():
    made = types.ModuleType(NAME)
    made.TritonError, made.Tensor, made.InferenceResponse = TritonError, Tensor, InferenceResponse
    made.TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
    made.get_input_tensor_by_name = lambda request, name: request.inputs.get(name)
    return made


def forget():
    """So that no other test finds modules that were imported with the fake."""
    for name in [*sys.modules]:
        if name == NAME or name.startswith("labkit.fleet.triton_server.models."):
            del sys.modules[name]
    sys.modules.pop("labkit.fleet.triton_server.answers", None)
