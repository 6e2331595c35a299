"""What is seen of one replica while it runs: gaps between tokens, use of blocks, service."""

from labkit.engine.blocks import BlockPool
from labkit.measure.simulate.cost import CostModel
from labkit.measure.simulate.fairness import Service
from labkit.measure.simulate.records import Gaps, Group
from labkit.measure.simulate.requests import Simulated
from labkit.measure.simulate.stride import Stride
from labkit.measure.simulate.timeline import Timeline


class Watch:
    """Told by a `Replica` of all that happens. `service` compares tenants, if it is there."""

    def __init__(
        self,
        pool: BlockPool,
        cost: CostModel,
        service: Service | None = None,
        timeline: Timeline | None = None,
    ):
        self.pool, self.cost, self.service, self.timeline = pool, cost, service, timeline
        self.num_steps = self.num_strides = 0
        self.peak_blocks = self.blocks_before = 0
        self.block_ticks = self.busy_ticks = 0  # blocks in use, integrated over the busy time
        self.last_tick = 0  # the end of its last step

    def begins(self) -> None:
        """A step or stride begins; it has its blocks."""
        self.blocks_before = self.pool.num_used
        self.compare()

    def compare(self) -> None:
        """Looks at what tenants got; within a stride a difference only grows or only shrinks."""
        if self.service:
            self.service.look()

    def computed(self, replica, now: int, num_steps: int) -> None:
        """It is over, and nobody's blocks are free yet. In a stride their number grows evenly."""
        used, duration = self.pool.num_used, now - replica.began
        self.peak_blocks = max(self.peak_blocks, used)
        self.block_ticks += (self.blocks_before + used) * duration // 2
        self.busy_ticks += duration
        self.last_tick = now
        self.num_steps += num_steps
        self.num_strides += 1
        if self.timeline is not None:
            self.timeline.computed(replica, now)

    def idle(self, replica, now: int) -> None:
        """It has nothing to do from now on."""
        if self.timeline is not None:
            self.timeline.idle(replica, now)

    def waits(self, request: Simulated, more: int) -> None:
        """It waits in line (1), or no longer (-1)."""
        if self.service:
            self.service.waits(request.tenant, more)

    def admitted(self, request: Simulated) -> None:
        if self.service:
            self.service.serve(request.tenant, request.num_prompt_tokens, 0)

    def token(self, request: Simulated, now: int) -> None:
        """One token of a single step."""
        self._odd_token(request, now)
        request.last = now
        if self.service:
            self.service.serve(request.tenant, 0, 1)

    def tokens(self, running: list[Simulated], stride: Stride, began: int, now: int) -> None:
        """A token for each running request in each step of a stride."""
        first = self._gap(stride, 0)
        longest = self._gap(stride, stride.num_steps - 1)
        sizes: dict[Group, list[int]] = {}  # how many, and of how many the first gap is `first`
        for request in running:
            size = sizes.setdefault(request.group, [0, 0])
            size[0] += 1
            if request.last == began:
                size[1] += 1
                request.longest_gap = max(request.longest_gap, longest)
            else:
                self._odd_token(request, began + first)
                if stride.num_steps > 1:
                    request.longest_gap = max(request.longest_gap, longest)
            request.last = now
        for group, (count, regular) in sizes.items():
            group.gaps.add(first, regular)
            self._add_gaps(group.gaps, count, stride, 1, stride.num_steps - 1)
            if self.service:
                self.service.serve(group.tenant, 0, count * stride.num_steps)

    def _odd_token(self, request: Simulated, now: int) -> None:
        """A token that may be the first, or come after a break."""
        if request.first is None:
            request.first = now
            return
        gap = now - request.last
        request.group.gaps.add(gap)
        request.longest_gap = max(request.longest_gap, gap)

    def _gap(self, stride: Stride, step: int) -> int:
        """Ticks of a step of a stride: each has more to read than the one before."""
        return self.cost.step(0, stride.num_running, stride.context + step * stride.num_running)

    def _add_gaps(self, gaps: Gaps, count: int, stride: Stride, first: int, last: int) -> None:
        """`count` gaps for each step from `first` to `last`, halved until they look alike."""
        if first > last:
            return
        short, long = self._gap(stride, first), self._gap(stride, last)
        if long - short <= short // 200:  # 0.5%, as exact as the buckets are
            gaps.add(short, count * (last - first + 1))
            return
        middle = (first + last) // 2
        self._add_gaps(gaps, count, stride, first, middle)
        self._add_gaps(gaps, count, stride, middle + 1, last)
