def allows(self, now: float) -> bool:
    if self.opened_at is not None:
        over = now - self.opened_at >= self.cooldown_s
        if self.is_probing or not over:
            return False
        self.is_probing = True
    return True
