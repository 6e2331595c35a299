"""Stand-ins for a model and for tokenizers, small enough to know every answer by hand.

Checks run a learner's part against these, so that a check takes milliseconds and what the part
did (how many tokens it sent through the model, say) can be read off afterwards.
"""

from types import SimpleNamespace

import torch


class ScriptedModel(torch.nn.Module):
    """A causal language model whose next token is plain arithmetic.

    After tokens t0 .. tn comes (1*t0 + 2*t1 + 3*t2 + ...) modulo 11: it depends on every token
    and on its place. Called like a `transformers` model; keeps what it was called with. Each
    call takes one second on `clock`.
    """

    vocab = 11

    def __init__(self):
        super().__init__()
        self.tokens_per_forward: list[int] = []
        self.use_cache: list[bool] = []
        self.kept_gradients = False
        self.now = 0.0

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def clock(self) -> float:
        return self.now

    @classmethod
    def after(cls, token_ids: list[int]) -> int:
        """The token that follows."""
        return sum(place * token for place, token in enumerate(token_ids, 1)) % cls.vocab

    def forward(
        self, input_ids, attention_mask=None, use_cache=True, logits_to_keep=0, **_
    ) -> SimpleNamespace:
        self.tokens_per_forward.append(input_ids.shape[1])
        self.use_cache.append(bool(use_cache))
        self.kept_gradients |= torch.is_grad_enabled()
        self.now += 1.0
        logits = torch.zeros(*input_ids.shape, self.vocab)
        for row, token_ids in enumerate(input_ids.tolist()):
            for end in range(len(token_ids)):
                logits[row, end, self.after(token_ids[: end + 1])] = 1.0 + end
        return SimpleNamespace(logits=logits[:, -logits_to_keep:])  # 0 keeps all


def mixes_devices(call) -> bool:
    """Whether `call`, with tensors on the device "meta", made others on another device.

    Tensors there have a shape and no numbers, so no GPU is needed to find this. A part that reads
    numbers can't run on them; nothing is said of it.
    """
    try:
        return call().device.type != "meta"
    except (RuntimeError, TypeError) as error:
        return "expected device" in str(error) or "same device" in str(error)


class FakeTokenizer:
    """Common to both fakes: special tokens have no text, and the longest decode is remembered."""

    special_ids: frozenset[int]

    def __init__(self):
        self.longest_decode = 0

    def decode(
        self, token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=None
    ) -> str:
        token_ids = [token_ids] if isinstance(token_ids, int) else list(token_ids)
        self.longest_decode = max(self.longest_decode, len(token_ids))
        if skip_special_tokens:
            token_ids = [token for token in token_ids if token not in self.special_ids]
        return self.join(token_ids)


class ByteTokenizer(FakeTokenizer):
    """Every byte of UTF-8 is a token, as in the worst case of a byte-level tokenizer."""

    eos_token_id = 256
    special_ids = frozenset({256})

    def join(self, token_ids: list[int]) -> str:
        text = b"".join(b"<eos>" if token == 256 else bytes([token]) for token in token_ids)
        return text.decode("utf-8", errors="replace")


class WordTokenizer(FakeTokenizer):
    """Each token is a word with its space before it, and the first of a text loses the space.

    So do the SentencePiece tokenizers of Llama 2 and Mistral.
    """

    words = (" the", " cat", " sat", "s", "<eos>")
    eos_token_id = 4
    special_ids = frozenset({4})

    def join(self, token_ids: list[int]) -> str:
        return "".join(self.words[token] for token in token_ids).removeprefix(" ")
