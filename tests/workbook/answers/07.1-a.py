def release(self, text: str, more_may_come: bool) -> str:
    if self.met:
        return ""
    everything, self.pending = self.pending + text, ""
    for place in range(len(everything)):
        rest = everything[place:]
        for stop in self.stop:  # the shortest first
            if rest.startswith(stop):
                self.met = stop
                return everything[:place]
        if more_may_come and any(stop.startswith(rest) for stop in self.stop):
            self.pending = rest
            return everything[:place]
    return everything
