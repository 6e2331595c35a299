"""Nothing of a stop string is sent, nothing is held back that can't become one."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from labkit.model.detokenizer import REPLACEMENT
from labkit.model.stop_strings import StopStrings
from labkit.model.text import TextStream
from labkit.model.tiny import tiny_tokenizer

BYTES = tiny_tokenizer()


def word_tokenizer(words):
    """As in Llama 2: ▁ is a space, and the first one of a decode is dropped."""
    vocab = {word: number for number, word in enumerate(["<unk>", *words])}
    tokenizer = Tokenizer(models.BPE(vocab, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")


def before_first(text, stop):
    """The text that a client may see, by search in the whole of it; and the stop string met."""
    found = [(text.find(s), len(s), s) for s in stop if s in text]
    return (text[: min(found)[0]], min(found)[2]) if found else (text, None)


def stream(pieces, stop):
    strings = StopStrings(tuple(stop))
    sent = [strings.push(piece)[0] for piece in pieces]
    return sent, strings.flush(), strings.met


LETTERS = st.text(alphabet="ab", max_size=12)
STOPS = st.lists(st.text(alphabet="ab", min_size=1, max_size=6), max_size=3)


@given(st.lists(LETTERS, max_size=8), STOPS)
@example(["abaab"], ["abab", "ba"])
@example(["aba", "a"], ["abab", "ba"])
def test_joined_it_is_the_text_before_the_first_stop_string_however_it_was_cut(pieces, stop):
    sent, rest, met = stream(pieces, stop)
    assert ("".join(sent) + rest, met) == before_first("".join(pieces), stop)


@given(st.lists(LETTERS, max_size=8), STOPS)
def test_what_is_held_back_is_the_longest_end_that_may_become_a_stop_string(pieces, stop):
    strings = StopStrings(tuple(stop))
    seen = sent = ""
    for piece in pieces:
        seen += piece
        sent += strings.push(piece)[0]
        if strings.met is not None:
            break
        ends = [seen[place:] for place in range(len(seen) + 1)]
        held = next(end for end in ends if end == "" or any(s.startswith(end) for s in stop))
        assert sent + held == seen
        assert all(len(held) < len(s) for s in stop if s.startswith(held))


def test_the_push_that_completes_a_stop_string_says_so():
    strings = StopStrings(("END", "###"))
    assert strings.push("one E") == ("one ", None)
    assert strings.push("N") == ("", None)
    assert strings.push("D two") == ("", "END")


def test_after_a_stop_string_everything_is_dropped():
    strings = StopStrings(("x",))
    assert strings.push("ax") == ("a", "x")
    assert strings.push("bx") == ("", "x")
    assert strings.flush() == ""


def test_a_stop_string_that_does_not_come_is_sent_late_and_whole():
    strings = StopStrings(("aab",))
    assert [strings.push(piece)[0] for piece in "aaac"] == ["", "", "a", "aac"]
    strings.push("aa")
    assert strings.flush() == "aa"
    assert strings.flush() == ""


def test_of_two_that_begin_together_the_one_that_completes_first_wins():
    assert stream(["ABCDE"], ["ABCD", "AB"]) == ([""], "", "AB")


def test_one_that_begins_earlier_wins_over_one_that_completes_earlier():
    assert stream(["ABCD", "E"], ["CD", "ABCDE"]) == (["", ""], "", "ABCDE")
    assert stream(["ABCD", "X"], ["CD", "ABCDE"]) == (["", "AB"], "", "CD")
    assert stream(["ABCD"], ["CD", "ABCDE"]) == ([""], "AB", "CD")


def test_without_stop_strings_text_passes():
    assert stream(["a", "", "b"], []) == (["a", "", "b"], "", None)


def test_an_empty_stop_string_is_refused():
    with pytest.raises(ValueError, match="empty"):
        StopStrings(("a", ""))


# Tokens to text


def push_all(text_stream, token_ids):
    return [text_stream.push(token_id) for token_id in token_ids]


def test_a_stop_string_across_tokens_does_not_leak():
    """Case 3: the output D EF, G, HI, J and the stop string DEFGHIJ."""
    tokenizer = word_tokenizer(["D", "EF", "G", "HI", "J", "▁more"])
    text_stream = TextStream(tokenizer, stop=("DEFGHIJ",))
    assert push_all(text_stream, [1, 2, 3, 4]) == [""] * 4
    assert text_stream.stopped is None
    assert text_stream.push(5) == ""
    assert text_stream.stopped == "DEFGHIJ"
    assert text_stream.push(6) + text_stream.flush() == ""


def test_leading_spaces_of_words_are_kept():
    words = word_tokenizer(["▁the", "▁cat", "s", "▁"])
    assert push_all(TextStream(words), [1, 2, 3, 4, 1]) == ["the", " cat", "s", " ", " the"]


def test_special_tokens_are_skipped_or_shown():
    token_ids = BYTES.encode("a<|im_end|>b")
    assert push_all(TextStream(BYTES), token_ids) == ["a", "", "b"]
    shown = TextStream(BYTES, skip_special_tokens=False)
    assert push_all(shown, token_ids) == ["a", "<|im_end|>", "b"]


def test_a_special_token_that_is_shown_can_stop():
    shown = TextStream(BYTES, stop=("<|im_end|>",), skip_special_tokens=False)
    assert push_all(shown, BYTES.encode("a<|im_end|>b")) == ["a", "", ""]
    assert shown.stopped == "<|im_end|>"


@pytest.mark.parametrize("text", ["ď", "🙂", "한글", "a👩‍👩‍👧b"])
def test_characters_of_several_tokens_come_whole(text):
    text_stream = TextStream(BYTES, stop=("never",))
    pieces = push_all(text_stream, BYTES.encode(text))
    assert "".join(pieces) + text_stream.flush() == text
    assert not any(REPLACEMENT in piece for piece in pieces)


def test_a_character_of_several_tokens_can_stop():
    text_stream = TextStream(BYTES, stop=("글",))
    assert "".join(push_all(text_stream, BYTES.encode("한글 끝"))) == "한"
    assert text_stream.stopped == "글"


def test_half_a_character_and_half_a_stop_string_are_flushed_once():
    text_stream = TextStream(BYTES, stop=("ab",))
    assert push_all(text_stream, BYTES.encode("xa한")[:-1]) == ["x", "", "", ""]
    assert text_stream.flush() == "a" + REPLACEMENT
    assert text_stream.flush() == ""


@settings(deadline=None)
@given(st.text(alphabet="aďb한🙂", max_size=12), st.lists(st.text("aď한", min_size=1, max_size=3)))
def test_a_text_of_any_characters_streams_up_to_its_first_stop_string(text, stop):
    text_stream = TextStream(BYTES, stop=tuple(stop))
    pieces = push_all(text_stream, BYTES.encode(text))
    seen = "".join(pieces) + text_stream.flush()
    assert (seen, text_stream.stopped) == before_first(text, stop)
