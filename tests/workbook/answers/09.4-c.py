def allows(self, now: float) -> bool:
    if not self.is_open:
        return True
    again_at = self.opened_at + self.cooldown_s
    free = not self.is_probing and now >= again_at
    self.is_probing = self.is_probing or free
    return free
