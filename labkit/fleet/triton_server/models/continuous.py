"""Continuous batching inside a decoupled model: the engine decides in each step who runs.

`execute` hands requests to the engine and returns at once, so that the next ones come in while
these are being answered. Responses follow through each request's sender, one for each token.
This is how the backends of vLLM and TensorRT-LLM sit in Triton Inference Server: it is the HTTP
server and the model's keeper, and its batcher is out of use.
"""

from labkit.fleet.triton_server.answers import Model


class TritonPythonModel:
    def initialize(self, args: dict) -> None:
        """Loads the model; the server calls it once for each instance."""
        self.model = Model(args)

    def execute(self, requests: list) -> None:
        """Puts requests in the engine's line."""
        self.model.ask(requests)

    def finalize(self) -> None:
        """The model is being unloaded."""
        self.model.close()
