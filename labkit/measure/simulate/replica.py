"""One simulated replica: a real scheduler, a clock of its own, a cost model for a model."""

from typing import NamedTuple

from labkit.engine.plan import StepPlan
from labkit.engine.scheduler import Scheduler
from labkit.measure.simulate import stride
from labkit.measure.simulate.cost import CostModel, seconds, work_of
from labkit.measure.simulate.requests import Simulated


class MadeUp(NamedTuple):
    """A sampled token; which one it is makes no difference."""

    token_id: int = 0
    logprobs: None = None
    error: str | None = None


TOKEN = MadeUp()


class Replica:
    """Serves what it receives, step by step; between two steps nothing happens.

    `wakes_at` is the tick at which the step under way ends, None when there is nothing to do.
    Whoever runs the clock calls `wake` then, and `receive` when a request arrives before it.
    `watch` is told of every step and token. With `strides` many decode steps are taken at once
    where that changes nothing; with a prefix cache each is taken alone.
    """

    def __init__(self, scheduler: Scheduler, cost: CostModel, watch, strides: bool = True):
        self.scheduler, self.cost, self.watch = scheduler, cost, watch
        self.strides = strides and not scheduler.pool.prefix_caching
        self.learns = stride.learns_pace(scheduler)
        self.inbox: list[Simulated] = []  # arrived while a step was under way
        self.began = 0
        self.wakes_at: int | None = None
        self.plan: StepPlan | None = None
        self.stride: stride.Stride | None = None
        self.sampling: list[Simulated] = []  # those that get a token from `plan`

    def receive(self, request: Simulated, now: int) -> None:
        """A request arrives, not later than `wakes_at`; a stride ends with the step under way."""
        self.inbox.append(request)
        if self.wakes_at is None:
            self.wakes_at = now
        elif self.stride and self.stride.num_steps > 1:
            way = self.stride
            way.num_steps = self.cost.steps_until(
                now - self.began, way.num_running, way.context, way.num_steps
            )
            length = self.cost.stride(way.num_steps, way.num_running, way.context)
            self.wakes_at = self.began + length

    def wake(self) -> list[Simulated]:
        """Ends the step under way, and begins the next one. Returns the requests that ended."""
        now = self.wakes_at
        was_stride = self.stride is not None
        ended = self._end_stride(now) if was_stride else self._end_step(now)
        quiet = was_stride and not self.inbox and not len(self.scheduler.policy)
        for request in self.inbox:
            self._add(request, ended)
        self.inbox.clear()
        self.plan = self.stride = self.wakes_at = None
        if not self.scheduler.has_unfinished():
            self.watch.idle(self, now)
            return ended
        self.began = now
        if quiet and self._begin_stride(planned=False):
            return ended
        self._begin_step()
        return ended

    def _add(self, request: Simulated, ended: list[Simulated]) -> None:
        try:
            self.scheduler.add(request)
        except ValueError as error:
            request.finish("error" if request.deadline is None else "deadline", str(error))
            ended.append(request)
        else:
            request.in_line = True
            self.watch.waits(request, 1)

    def _begin_step(self) -> None:
        """Plans the next step, and sets when it will be over."""
        self.plan = plan = self.scheduler.plan(seconds(self.began))
        for request in plan.preempted:
            self._leave_line(request, back=True)
        self.sampling = []
        for chunk in plan.chunks.values():
            request = chunk.request
            if request.in_line:
                self._leave_line(request)
            if chunk.start + chunk.num_tokens == request.num_tokens:
                self.sampling.append(request)
        self.watch.begins()
        steady = stride.is_steady(self.scheduler, plan, len(self.sampling))
        if steady and self._begin_stride(planned=True):
            return
        if not (plan.chunks or plan.failed or plan.preempted):
            raise RuntimeError(
                f"the scheduler plans nothing for {len(self.scheduler.known)} unfinished requests"
            )
        swapped = len(plan.swap_out) + len(plan.swap_in)
        self.wakes_at = self.began + self.cost.step(*work_of(plan), swapped)

    def _leave_line(self, request: Simulated, back: bool = False) -> None:
        """It runs, or is `back` in line after a preemption."""
        if request.in_line is back:
            return
        request.in_line = back
        if not back and request.started is None:
            request.started = self.began
            self.watch.admitted(request)
        self.watch.waits(request, 1 if back else -1)

    def _begin_stride(self, planned: bool) -> bool:
        """Takes the steps from now on in one, if there are two or more alike."""
        if not self.strides or not self.scheduler.running:
            return False
        way = stride.find(self.scheduler, self.cost, self.began, planned)
        if way is None or way.num_steps < 2 and planned:
            return False
        if not planned:
            self.watch.begins()
        self.stride = way
        length = self.cost.stride(way.num_steps, way.num_running, way.context)
        self.wakes_at = self.began + length
        return True

    def _end_step(self, now: int) -> list[Simulated]:
        if self.plan is None:
            return []
        self.watch.computed(self, now, 1)
        self.scheduler.commit(self.plan, [TOKEN] * len(self.sampling), seconds(now))
        ended = list(self.plan.failed)
        for request in ended:
            if request.in_line:
                self.watch.waits(request, -1)
        for request in self.sampling:
            self.watch.token(request, now)
            if request.finish_reason:
                ended.append(request)
        self.watch.compare()
        return ended

    def _end_stride(self, now: int) -> list[Simulated]:
        way = self.stride
        running = list(self.scheduler.running.values())
        last = stride.take(self.scheduler, way.num_steps)
        self.watch.computed(self, now, way.num_steps)
        self.watch.tokens(running, way, self.began, now)
        self.watch.compare()
        times = self._last_times(way)
        for begin, end in times[:-1]:
            self.scheduler.pace.observe(way.num_running, seconds(end) - seconds(begin))
        begin, end = times[-1]
        if last:
            plan = stride.LastStep(seconds(begin), way.num_running)
            plan.chunks = {chunk.request.request_id: chunk for chunk in last}
            self.scheduler.commit(plan, [TOKEN] * len(last), seconds(end))
        elif self.learns:
            self.scheduler.pace.observe(way.num_running, seconds(end) - seconds(begin))
        return [chunk.request for chunk in last]

    def _last_times(self, way: stride.Stride) -> list[tuple[int, int]]:
        """Begin and end of the steps that the scheduler's pace has to learn of, and of the last."""
        first = 0 if self.learns else way.num_steps - 1
        ends = [
            self.began + self.cost.stride(k, way.num_running, way.context)
            for k in range(first, way.num_steps + 1)
        ]
        return list(zip(ends[:-1], ends[1:], strict=True))
