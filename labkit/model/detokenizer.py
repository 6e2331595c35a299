"""Tokens to text, piece by piece, never half a character.

A byte-level tokenizer may spread one character over several tokens: 한 is three bytes and can be
three tokens. Decoding each token alone gives U+FFFD, the replacement character, three times.
"""

REPLACEMENT = "\ufffd"  # what a decoder writes where the bytes are not a whole character


class Detokenizer:
    """Turns the tokens of one request into pieces of text that joined equal the whole decode.

    Two offsets into `token_ids` keep the work small (the scheme is the one of Hugging Face's
    text-generation-inference, also used by vLLM):

        tokens:  [ settled ... | prefix_offset: context | read_offset: not yet emitted ]

    Tokens before `read_offset` have been emitted as text. Those from `prefix_offset` to
    `read_offset` are decoded again as context, since what a token looks like can depend on the
    token before (some tokenizers drop the space before the first word they decode).
    """

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.token_ids: list[int] = []
        self.prefix_offset = 0
        self.read_offset = 0

    def decode(self, token_ids: list[int]) -> str:
        """The text of `token_ids`, without special tokens and without any tidying of spaces."""
        return self.tokenizer.decode(
            token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    def push(self, token_id: int) -> str:
        """Appends the next token and returns the text that is new and safe to send, often "".

        Text is safe when it does not end in `REPLACEMENT`, that is, inside a character; what
        is held back comes with a later token, or from `flush`. Only the tokens from
        `prefix_offset` on are decoded (`self.decode`), so that a step costs the same at the
        thousandth token as at the first. Whenever text is sent, what was new becomes context:
        `prefix_offset` moves to `read_offset`, and `read_offset` to the end. A token without
        text (a special token) moves nothing.
        """
        self.token_ids.append(token_id)
        context = self.decode(self.token_ids[self.prefix_offset : self.read_offset])
        window = self.decode(self.token_ids[self.prefix_offset :])
        if window.endswith(REPLACEMENT) or len(window) == len(context):
            return ""
        self.prefix_offset = self.read_offset
        self.read_offset = len(self.token_ids)
        return window[len(context) :]

    def flush(self) -> str:
        """What is still held back when the request ends, half a character included, once."""
        context = self.decode(self.token_ids[self.prefix_offset : self.read_offset])
        window = self.decode(self.token_ids[self.prefix_offset :])
        self.prefix_offset = self.read_offset = len(self.token_ids)
        return window[len(context) :]
