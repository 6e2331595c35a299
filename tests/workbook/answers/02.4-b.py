def leave(self, ended: Sequence[Request]) -> None:
    list(map(self.release, ended))
    for request in self.batch:
        if request.state != State.FINISHED:
            return
    self.batch.clear()
