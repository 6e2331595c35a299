"""The smallest model there is, to see whether an installed server works. Standard library only."""

import json
import tempfile
from pathlib import Path

from labkit.fleet.triton_server import server
from labkit.fleet.triton_server.model_config import ModelConfig, Tensor
from labkit.fleet.triton_server.pbtxt import to_pbtxt

CONFIG = ModelConfig(
    "echo",
    inputs=[Tensor("numbers", "TYPE_INT32", (-1,))],
    outputs=[Tensor("same", "TYPE_INT32", (-1,))],
)
MODEL = '''\
import triton_python_backend_utils as pb_utils

import labkit.fleet.triton_server.engine_link  # what the other models need is there


class TritonPythonModel:
    def execute(self, requests):
        found = [pb_utils.get_input_tensor_by_name(one, "numbers") for one in requests]
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("same", one.as_numpy())]) for one in found
        ]
'''


def answer_once() -> str:
    """Starts a server, has it echo three numbers, ends it; returns its version.

    Raises ServerError with what the server said.
    """
    with tempfile.TemporaryDirectory(prefix="labkit-triton-server-") as folder:
        place = Path(folder, "models", "echo", "1")
        place.mkdir(parents=True)
        (place.parent / "config.pbtxt").write_text(to_pbtxt(CONFIG), encoding="utf-8")
        (place / "model.py").write_text(MODEL, encoding="utf-8")
        with server.running(Path(folder, "models")) as one:
            one.post("repository/models/echo/load")
            answer = one.post("models/echo/generate", {"numbers": [1, 2, 3]})
            if answer.get("same") != [1, 2, 3]:
                raise server.ServerError(f"echo of [1, 2, 3] gave {json.dumps(answer)}")
            return one.get("")["version"]
