def leave(self, ended: Sequence[Request]) -> None:
    for request in ended:
        self.release(request)
    for request in self.batch:
        if request.state is not State.FINISHED:
            return
    self.batch.clear()
