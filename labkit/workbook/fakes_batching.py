"""Stand-ins for the checks of notebook 02: a model that sees padding, an engine with a script."""

from types import SimpleNamespace

import torch


class PaddedModel(torch.nn.Module):
    """A causal language model of arithmetic that sees what padding does to it.

    The token after column c of a row is the sum of (position + 1) * token over the columns up
    to c that the mask lets it see, and c itself, modulo 11. Without a mask it sees all, and
    without positions it counts columns from 0, padding too, as GPT-2 does. On the device "meta",
    where tensors have no numbers, it only notes on which devices those are that it is given.
    """

    vocab = 11

    def __init__(self, device="cpu"):
        super().__init__()
        self.device, self.devices = torch.device(device), set()
        self.shapes: list[list[int]] = []
        self.logits_made: list[int] = []
        self.use_cache: list[bool] = []
        self.kept_gradients = False

    def forward(
        self,
        input_ids,
        attention_mask=None,
        position_ids=None,
        use_cache=True,
        logits_to_keep=0,
        **_,
    ) -> SimpleNamespace:
        num_rows, num_columns = input_ids.shape
        given = (input_ids, attention_mask, position_ids)
        self.devices |= {tensor.device.type for tensor in given if tensor is not None}
        if self.device.type == "meta":
            kept = min(logits_to_keep or num_columns, num_columns)
            return SimpleNamespace(logits=torch.zeros(num_rows, kept, self.vocab, device="meta"))
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        if position_ids is None:
            position_ids = torch.arange(num_columns).expand(num_rows, -1)
        attention_mask = attention_mask.long()  # a mask of bools or floats says the same
        worth = (position_ids + 1) * input_ids
        seen = (worth * attention_mask).cumsum(dim=1)
        following = (seen + worth * (1 - attention_mask)) % self.vocab
        logits = torch.nn.functional.one_hot(following, self.vocab).float()
        logits = logits[:, -logits_to_keep:]  # 0 keeps all
        self.shapes.append([num_rows, num_columns])
        self.logits_made.append(logits.shape[1])
        self.use_cache.append(bool(use_cache))
        self.kept_gradients |= torch.is_grad_enabled()
        return SimpleNamespace(logits=logits)


def scripted_engine(part, scripts: dict[str, list[int]], batch_size: int, eos=(), reading=0.0):
    """A `part.BatchEngine` whose requests say the tokens of `scripts`, by id, one after another.

    A token below 0 in a script stands for logits that can't be sampled. Each pass takes a second
    on the engine's clock, and each look at the clock `reading` seconds. `passes` lists the ids
    that each pass was asked for; a request of the batch holds the block `row` until `release`,
    and `freed` lists who gave one back, in order.
    """

    class ScriptedEngine(part.BatchEngine):
        def __init__(self):
            super().__init__(eos, batch_size, clock=self.read)
            self.now = 0.0
            self.passes: list[list[str]] = []
            self.freed: list[str] = []

        def read(self):
            now, self.now = self.now, self.now + reading
            return now

        def next_batch(self):
            batch = super().next_batch()
            for row, request in enumerate(batch):
                request.block_table = [row]
            return batch

        def next_logits(self, running):
            self.now += 1.0
            self.passes.append([request.request_id for request in running])
            logits = torch.zeros(len(running), 11)
            for row, request in enumerate(running):
                said = len(request.output_token_ids)
                token = (scripts[request.request_id] + [10] * 20)[said]
                if token < 0:
                    logits[row] = float("nan")
                else:
                    logits[row, token] = 1.0
            return logits

        def release(self, request):
            self.freed.append(request.request_id)
            request.block_table = []

    return ScriptedEngine()
