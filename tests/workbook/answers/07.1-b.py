def release(self, text: str, more_may_come: bool) -> str:
    if self.met is not None:
        return ""
    text = self.pending + text
    found = [(text.find(stop), len(stop), stop) for stop in self.stop if stop in text]
    whole = min(found, default=(len(text), 0, None))
    begins = len(text)
    if more_may_come:
        begins = next((i for i in range(len(text)) if self.may_begin(text, i)), begins)
    if whole[2] is not None and whole[0] <= begins:
        self.met, self.pending = whole[2], ""
        return text[: whole[0]]
    self.pending = text[begins:]
    return text[:begins]
