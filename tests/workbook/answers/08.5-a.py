def refuse(self, request: Request, now: float, seconds: Callable) -> str | None:
    if request.deadline is not None:
        left = request.deadline - now
        if left < 0:
            return passed(request, now - request.deadline)
        needed = seconds(request)
        if left < needed:
            return out_of_reach(request, needed, left)
    return None
