"""Batches of whole requests: Triton Inference Server's dynamic batcher decides who runs together.

`execute` gets a batch and keeps the model until its last request has ended; whoever comes
meanwhile waits in the server's queue. That is how a classifier is batched, whose requests all
take equally long, and how an LLM was before continuous batching.
"""

from labkit.fleet.triton_server.answers import Model


class TritonPythonModel:
    def initialize(self, args: dict) -> None:
        """Loads the model; the server calls it once for each instance."""
        self.model = Model(args)

    def execute(self, requests: list) -> list | None:
        """One batch, to its end. The streamed variant has sent its responses by then."""
        answers = self.model.ask(requests)
        for answer in answers:
            answer.ended.wait()
        return None if self.model.streams else [answer.whole() for answer in answers]

    def finalize(self) -> None:
        """The model is being unloaded."""
        self.model.close()
