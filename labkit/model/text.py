"""From the tokens of one request to the text that its client may see."""

from labkit.model.detokenizer import Detokenizer
from labkit.model.stop_strings import StopStrings


class DetokenizerWithSpecials(Detokenizer):
    """A detokenizer that writes special tokens out, `<|im_end|>` for example."""

    def decode(self, token_ids: list[int]) -> str:
        """The text of `token_ids`, special tokens included, without any tidying of spaces."""
        return self.tokenizer.decode(
            token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )


class TextStream:
    """Tokens in, pieces of text out: never half a character, nothing of a stop string.

    The pieces joined are the decode of all tokens, up to the first stop string. Once `stopped`
    is set, the request can be aborted: whatever is pushed after that gives no text. A token that
    ended the request (an end-of-sequence token, a stop token) is not pushed.
    """

    def __init__(self, tokenizer, stop: tuple[str, ...] = (), skip_special_tokens: bool = True):
        kind = Detokenizer if skip_special_tokens else DetokenizerWithSpecials
        self.detokenizer = kind(tokenizer)
        self.stop_strings = StopStrings(stop)

    @property
    def stopped(self) -> str | None:
        """The stop string that ended the text; None if none has."""
        return self.stop_strings.met

    def push(self, token_id: int, may_stop: bool = True) -> str:
        """The text that is new and safe to send with the next token, often "".

        A stop string that begins in the text of a token without `may_stop` is let through: the
        first ones of a request with `min_tokens`.
        """
        text = self.detokenizer.push(token_id)
        return self.stop_strings.push(text)[0] if may_stop else text

    def flush(self) -> str:
        """What is still held back when the request ends, once; `stopped` may be set by it."""
        safe, _ = self.stop_strings.push(self.detokenizer.flush())
        return safe + self.stop_strings.flush()
