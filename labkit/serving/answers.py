"""What a client gets: whole answers and pieces of them, in the shapes of OpenAI's API."""

import codecs

import msgspec

from labkit.answers import Piece
from labkit.serving.lifecycle import Choice, Ticket
from labkit.serving.messages import TokenLogprobs
from labkit.serving.text import TextSide

LEAST_LOGPROB = -9999.0  # JSON has no minus infinity
OBJECTS = {"chat": "chat.completion", "completions": "text_completion"}
UTF8 = codecs.getincrementaldecoder("utf-8")
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": still here\n\n"


def event(content: dict) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(content) + b"\n\n"


def usage(ticket: Ticket) -> dict:
    """Tokens of prompts and answers."""
    return {
        "prompt_tokens": ticket.num_prompt_tokens,
        "completion_tokens": ticket.num_tokens,
        "total_tokens": ticket.num_prompt_tokens + ticket.num_tokens,
        "prompt_tokens_details": {"cached_tokens": ticket.num_cached_tokens},
    }


class Shapes:
    """Answers to one ticket. `model` is the name that clients know the model by."""

    def __init__(self, ticket: Ticket, text: TextSide, model: str):
        self.ticket, self.text, self.is_chat = ticket, text, ticket.asked.endpoint == "chat"
        kind = OBJECTS[ticket.asked.endpoint]
        common = {"id": ticket.id, "created": ticket.created, "model": model}
        self.whole_head = {**common, "object": kind}
        self.chunk_head = {**common, "object": f"{kind}.chunk" if self.is_chat else kind}
        self.offsets = [0] * len(ticket.choices)  # characters of each text before the next token
        self.decoders = [UTF8("replace") for _ in ticket.choices]  # of a character begun

    def whole(self) -> dict:
        """The answer to a request that isn't streamed."""
        choices = [self.whole_choice(choice) for choice in self.ticket.choices]
        return {**self.whole_head, "choices": choices, "usage": usage(self.ticket)}

    def whole_choice(self, choice: Choice) -> dict:
        output = choice.output
        # One entry a token if logprobs were asked for, else none.
        tokens = [*zip(output.token_ids, output.logprobs, strict=False)]
        ending = {
            "index": choice.index,
            "logprobs": self.logprobs(choice.index, tokens) if self.with_logprobs else None,
            "finish_reason": output.finish_reason,
        }
        if self.is_chat:
            return {"message": {"role": "assistant", "content": output.text}, **ending}
        return {"text": output.text, **ending}

    def opening(self) -> list[bytes]:
        """The events before the first token: who speaks."""
        if not self.is_chat:
            return []
        delta = {"role": "assistant", "content": ""}
        return [self.chunk(choice.index, delta, None, None) for choice in self.ticket.choices]

    def piece(self, piece: Piece) -> bytes:
        """The event of one piece; nothing where there is nothing to tell yet."""
        logprobs = None
        if piece.logprobs is not None:
            logprobs = self.logprobs(piece.index, [(piece.token_id, piece.logprobs)])
        if not (piece.text or piece.finish_reason or logprobs):
            return b""
        if self.is_chat:
            delta = {"content": piece.text} if piece.text else {}
            return self.chunk(piece.index, delta, logprobs, piece.finish_reason)
        return self.chunk(piece.index, piece.text, logprobs, piece.finish_reason)

    def chunk(self, index: int, content, logprobs, finish_reason: str | None) -> bytes:
        named = {"delta" if self.is_chat else "text": content}
        ending = {"index": index, "logprobs": logprobs, "finish_reason": finish_reason}
        return event({**self.chunk_head, "choices": [{**named, **ending}]})

    def closing(self) -> bytes:
        """The events after the last token."""
        if not self.ticket.asked.include_usage:
            return DONE
        return event({**self.chunk_head, "choices": [], "usage": usage(self.ticket)}) + DONE

    # ---- logprobs

    @property
    def with_logprobs(self) -> bool:
        return self.ticket.asked.params.logprobs is not None

    def logprobs(self, index: int, tokens: list[tuple[int, TokenLogprobs]]) -> dict:
        if self.is_chat:
            return {"content": [self.chat_entry(*token) for token in tokens], "refusal": None}
        return self.legacy(index, tokens)

    def chat_entry(self, token_id: int, found: TokenLogprobs) -> dict:
        most = self.ticket.asked.params.logprobs
        top = [self.named(*one) for one in found.alternatives[:most]]
        return {**self.named(token_id, found.logprob), "top_logprobs": top}

    def named(self, token_id: int, logprob: float) -> dict:
        """A token decoded alone; its bytes are its own, also where they are half a character."""
        raw = self.text.token_bytes(token_id)
        return {
            "token": raw.decode(errors="replace"),
            "logprob": max(logprob, LEAST_LOGPROB),
            "bytes": [*raw],
        }

    def legacy(self, index: int, tokens: list[tuple[int, TokenLogprobs]]) -> dict:
        """The shape of /v1/completions: a list for each thing."""
        named = [self.named(token_id, found.logprob) for token_id, found in tokens]
        offsets, skipped = [], self.ticket.asked.params.skip_special_tokens
        for entry, (token_id, _) in zip(named, tokens, strict=True):
            offsets.append(self.offsets[index])
            if not (skipped and token_id in self.text.special_ids):
                text = self.decoders[index].decode(bytes(entry["bytes"]))
                self.offsets[index] += len(text)
        return {
            "tokens": [entry["token"] for entry in named],
            "token_logprobs": [entry["logprob"] for entry in named],
            "top_logprobs": [self.top(token_id, found) for token_id, found in tokens],
            "text_offset": offsets,
        }

    def top(self, token_id: int, found: TokenLogprobs) -> dict[str, float]:
        """Alternatives by their text, the chosen token among them; of two with one text the
        likelier."""
        best: dict[str, float] = {}
        for one, logprob in [*found.alternatives, (token_id, found.logprob)]:
            entry = self.named(one, logprob)
            best.setdefault(entry["token"], entry["logprob"])
        return best
