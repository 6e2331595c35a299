def refuse(self, request: Request, now: float, seconds: Callable) -> str | None:
    end = math.inf if request.deadline is None else request.deadline
    if now > end:
        return passed(request, now - end)
    needed = seconds(request)
    return None if now + needed <= end else out_of_reach(request, needed, end - now)
