"""Stop strings in text that comes in pieces: nothing of one is sent, and nothing waits too long."""


class StopStrings:
    """Lets text through up to the first stop string.

    First is the one that begins first; of those that begin at the same place, the one that
    completes first. Which one it is depends on the text alone, not on how it was cut.

    Invariant: `pending` is empty or a proper prefix of a stop string, so that the text to come
    decides whether it may be sent. With "ABCDE" and "CD" the text "ABCD" waits: an E makes it
    "ABCDE", met and all dropped; anything else "CD", met with "AB" sent.

    `met` is the stop string that ended the text, None until then. Raises ValueError for an empty
    stop string: it would end every text at once.
    """

    def __init__(self, stop: tuple[str, ...]):
        if "" in stop:
            raise ValueError("a stop string is empty, 1 character is needed; leave it out")
        self.stop = tuple(sorted(stop, key=len))  # of those that begin together the shortest
        self.pending = ""
        self.met: str | None = None

    def push(self, text: str) -> tuple[str, str | None]:
        """Takes more text; returns what is safe to send now, and the stop string met or None.

        After a stop string was met, all text is dropped.
        """
        return self.release(text, more_may_come=True), self.met

    def flush(self) -> str:
        """What was still held back when the text ends; a stop string may be met in that (`met`)."""
        return self.release("", more_may_come=False)

    def release(self, text: str, more_may_come: bool) -> str:
        """The part of `pending + text` before the first place where a stop string is, or begins.

        At a place a stop string *is* if it stands there whole: it is written to `met` (of several
        the first in `self.stop`), nothing is pending any more, and from then on "" is returned.
        One *begins* there if the text from there to its end may still grow into one (`may_begin`)
        and `more_may_come`: that text is `pending`. If there is no such place all text is
        returned. Without stop strings nothing is ever held back.
        """
        if self.met is not None:
            return ""
        if not self.stop:
            return text
        text = self.pending + text
        for place in range(len(text)):
            self.met = next((stop for stop in self.stop if text.startswith(stop, place)), None)
            if self.met is not None or (more_may_come and self.may_begin(text, place)):
                self.pending = text[place:] if self.met is None else ""
                return text[:place]
        self.pending = ""
        return text

    def may_begin(self, text: str, place: int) -> bool:
        """Whether `text` from `place` on, to its end, may grow into a stop string."""
        length = len(text) - place
        return any(length < len(stop) and text.endswith(stop[:length]) for stop in self.stop)
