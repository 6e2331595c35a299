def refuse(self, request: Request, now: float, seconds: Callable) -> str | None:
    if request.deadline is None:
        return None
    if now > request.deadline:
        return passed(request, now - request.deadline)
    needed = seconds(request)
    if needed <= request.deadline - now:
        return None
    return out_of_reach(request, needed, request.deadline - now)
