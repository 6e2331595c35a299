def leave(self, ended: Sequence[Request]) -> None:
    for one in ended:
        self.release(one)
    still_running = [r for r in self.batch if r.finish_reason is None]
    if not still_running:
        self.batch = []
