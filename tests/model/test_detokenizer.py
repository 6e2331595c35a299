"""Pieces joined are the whole decode, and no piece is half a character."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerFast

from labkit.model.detokenizer import REPLACEMENT, Detokenizer
from labkit.model.tiny import tiny_tokenizer

BYTES = tiny_tokenizer()


def metaspace_tokenizer():
    """As in Llama 2: the first word of a decode loses its space; unknown bytes have own tokens."""
    words = ["<unk>", "▁the", "▁cat", "s", "▁", "한", ".", "\n"]
    vocab = {word: number for number, word in enumerate(words)}
    vocab |= {f"<0x{byte:02X}>": len(words) + byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE(vocab, merges=[], unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


WORDS = metaspace_tokenizer()


def pieces(tokenizer, token_ids):
    detokenizer = Detokenizer(tokenizer)
    return [detokenizer.push(token_id) for token_id in token_ids], detokenizer.flush()


def whole(tokenizer, token_ids):
    return tokenizer.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


@pytest.mark.parametrize(
    "text", ["plain", "ď", "한글 스트리밍", "🙂👩‍👩‍👧", " two  spaces ", "\n\n", "a\tb"]
)
def test_whole_text_streams_without_a_replacement_character(text):
    streamed, rest = pieces(BYTES, BYTES.encode(text))
    assert "".join(streamed) == text
    assert rest == ""
    assert not any(REPLACEMENT in piece for piece in streamed)


@settings(deadline=None)
@given(st.lists(st.integers(0, 258), max_size=40))
def test_any_bytes_joined_are_the_whole_decode(token_ids):
    streamed, rest = pieces(BYTES, token_ids)
    assert "".join(streamed) + rest == whole(BYTES, token_ids)
    assert not any(piece.endswith(REPLACEMENT) for piece in streamed)


@settings(deadline=None)
@given(st.lists(st.integers(0, 7), max_size=20))
def test_words_that_lose_their_first_space_joined_are_the_whole_decode(token_ids):
    streamed, rest = pieces(WORDS, token_ids)
    assert "".join(streamed) + rest == whole(WORDS, token_ids)


@settings(deadline=None)
@given(st.text(max_size=20))
def test_text_comes_as_soon_as_in_the_tokenizers_library(text):
    """`DecodeStream` is the library's own incremental decoder, in Rust."""
    token_ids = BYTES.encode(text)
    stream = DecodeStream(skip_special_tokens=True)
    theirs = [stream.step(BYTES.backend_tokenizer, token_id) or "" for token_id in token_ids]
    if REPLACEMENT not in text:
        assert pieces(BYTES, token_ids)[0] == theirs


def test_a_generation_that_ends_inside_a_character_is_flushed_once():
    detokenizer = Detokenizer(BYTES)
    assert [detokenizer.push(token) for token in BYTES.encode("a한")[:-1]] == ["a", "", ""]
    assert detokenizer.flush() == REPLACEMENT
    assert detokenizer.flush() == ""


def test_a_step_decodes_a_window_and_not_everything():
    class Counting:
        longest = 0

        def decode(self, token_ids, **options):
            self.longest = max(self.longest, len(token_ids))
            return BYTES.decode(token_ids, **options)

    counting = Counting()
    detokenizer = Detokenizer(counting)
    for token_id in BYTES.encode("한글 " * 100):
        detokenizer.push(token_id)
    assert counting.longest <= 8
