def _forget(self, request: Request) -> None:
    name = request.request_id
    self.known.pop(name)
    siblings = self.copies.get(request.copy_of)
    if siblings and request in siblings:
        siblings.remove(request)
    self.policy.remove(name)
    if name in self.running:
        del self.running[name]
    self.books.release(request)
    self._start_copies(request)
