def _forget(self, request: Request) -> None:
    name = request.request_id
    self.known.pop(name)
    self.policy.remove(name)
    if name in self.running:
        del self.running[name]
    else:
        siblings = self.copies.get(request.copy_of, [])
        self.copies[request.copy_of] = [one for one in siblings if one is not request]
    self.books.release(request)
    self._start_copies(request)
