def _forget(self, request: Request) -> None:
    self.books.release(request)
    self._start_copies(request)
    for waiting in self.copies.values():
        waiting[:] = [other for other in waiting if other.request_id != request.request_id]
    self.policy.remove(request.request_id)
    for table in (self.running, self.known):
        table.pop(request.request_id, None)
