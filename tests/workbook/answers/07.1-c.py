def release(self, text: str, more_may_come: bool) -> str:
    if self.met is not None or not self.stop:
        return "" if self.stop else text
    text, place = self.pending + text, 0
    self.pending = ""
    while place < len(text):
        for stop in self.stop:
            if text[place : place + len(stop)] == stop:
                self.met = stop
                return text[:place]
        if more_may_come and self.may_begin(text, place):
            self.pending = text[place:]
            break
        place += 1
    return text[:place]
