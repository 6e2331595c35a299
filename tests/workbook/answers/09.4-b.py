def allows(self, now: float) -> bool:
    state = self.state(now)
    if state == "closed":
        return True
    if state == "half-open" and not self.is_probing:
        self.is_probing = True
        return True
    return False
