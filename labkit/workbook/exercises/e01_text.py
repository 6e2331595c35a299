"""Notebook 01, text from tokens: `Detokenizer.push`."""

from labkit.workbook.registry import Case, Exercise, Mistake


def _pieces(token_ids, words=False, flush=False):
    def observe(part):
        from labkit.workbook.fakes import ByteTokenizer, WordTokenizer

        tokenizer = WordTokenizer() if words else ByteTokenizer()
        detokenizer = part.Detokenizer(tokenizer)
        pieces = [detokenizer.push(token_id) for token_id in token_ids]
        return {"pieces": pieces + [detokenizer.flush()]} if flush else {"pieces": pieces}

    return observe


def _cost(part):
    from labkit.workbook.fakes import ByteTokenizer

    tokenizer = ByteTokenizer()
    detokenizer = part.Detokenizer(tokenizer)
    joined = "".join(detokenizer.push(ord("a")) for _ in range(64))
    return {"text": joined, "decodes at most 8 tokens": tokenizer.longest_decode <= 8}


HANGUL = "한글"

PUSH = Exercise(
    id="01.3",
    module="labkit.model.detokenizer",
    symbol="Detokenizer.push",
    core=False,
    minutes=25,
    difficulty=3,
    cases=(
        Case("letters", _pieces(b"Hi"), {"pieces": ["H", "i"]}),
        Case("hangul", _pieces(HANGUL.encode()), {"pieces": ["", "", "한", "", "", "글"]}),
        Case("spaces", _pieces(b"a \n b"), {"pieces": ["a", " ", "\n", " ", "b"]}),
        Case("first_space", _pieces([0, 1, 3], words=True), {"pieces": ["the", " cat", "s"]}),
        Case(
            "special",
            _pieces([0, 4, 1, 4], words=True),
            {"pieces": ["the", "", " cat", ""]},
        ),
        Case(
            "half_at_the_end",
            _pieces("a한".encode()[:-1], flush=True),
            {"pieces": ["a", "", "", "\ufffd"]},
        ),
        Case("stray_byte", _pieces(b"\xffab"), {"pieces": ["", "\ufffda", "b"]}),
        Case("cost", _cost, {"text": "a" * 64, "decodes at most 8 tokens": True}),
    ),
    mistakes=(
        Mistake("half_characters", (("window.endswith(REPLACEMENT) or ", ""),)),
        Mistake(
            "token_alone",
            (
                ("self.token_ids[self.prefix_offset :])", "[token_id])"),
                ("window.endswith(REPLACEMENT) or len(window) == len(context)", "False"),
                ("window[len(context) :]", "window"),
            ),
        ),
        Mistake("sent_twice", (("window[len(context) :]", "window"),)),
        Mistake(
            "no_context",
            (
                (
                    "self.prefix_offset = self.read_offset",
                    "self.prefix_offset = len(self.token_ids)",
                ),
            ),
        ),
        Mistake("held_forever", (("window.endswith(REPLACEMENT)", "REPLACEMENT in window"),)),
        Mistake("stripped", (("window[len(context) :]", "window[len(context) :].strip()"),)),
        Mistake(
            "everything_again",
            (
                ("self.prefix_offset : self.read_offset", "0 : self.read_offset"),
                ("self.token_ids[self.prefix_offset :]", "self.token_ids"),
            ),
        ),
        Mistake("thrown_away", (('return ""', 'self.token_ids.pop()\n        return ""'),)),
    ),
)

EXERCISES = (PUSH,)
