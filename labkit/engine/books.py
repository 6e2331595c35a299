"""The books of the blocks: what each request holds, shares, needs, and has on the host."""

from collections.abc import Mapping

from labkit.engine.blocks import BlockPool, hash_block, root_hash
from labkit.engine.plan import Chunk, StepPlan
from labkit.engine.request import Request


class Books:
    """Blocks of the device from `pool`; of the host, for requests swapped out, from `host`."""

    def __init__(self, pool: BlockPool, host: BlockPool | None = None):
        self.pool, self.host = pool, host

    def find_computed(
        self, request: Request, running: Mapping[str, Request]
    ) -> tuple[list[int], int]:
        """Blocks that hold the beginning of a waiting request, and how many of its tokens.

        They are found in the prefix cache, or are those of the request that it is a copy of. For
        one that is swapped out nothing is looked for: it has all on the host.
        """
        if request.host_blocks:
            return [], 0
        shared = self.find_cached(request)
        num_found, num_shared = len(shared) * self.pool.block_size, request.num_prompt_tokens - 1
        parent = computed_parent(request, running)
        if parent is None or num_found >= num_shared:
            return shared, num_found
        return parent.block_table[: self.pool.blocks_for(num_shared)], num_shared

    def find_cached(self, request: Request) -> list[int]:
        """The blocks of the longest beginning of a request that the prefix cache has, in order.

        Only full blocks can be found, of prompt and output (a preempted request has both); only
        these are given to `hashes`, which keeps what it computes. At least one token is left to
        compute: without it there would be no logits to choose the next one from. Nothing is found
        when the pool does no prefix caching.
        """
        if not self.pool.prefix_caching:
            return []
        num_full = (request.num_tokens - 1) // self.pool.block_size
        return self.pool.find(self.hashes(request, num_full))

    def missing(self, request: Request, shared: list[int], num_cached: int) -> int:
        """How many blocks too few are free for all tokens of a waiting request."""
        writes_shared = num_cached < len(shared) * self.pool.block_size
        needed = self.pool.blocks_for(request.num_tokens) - len(shared) + writes_shared
        return needed + self.pool.num_free_in(shared) - self.pool.num_free

    def start(self, plan: StepPlan, request: Request, shared: list[int], num_cached: int) -> None:
        """Gives a waiting request what it has on the host, or else the `shared` blocks, which
        hold its first `num_cached` tokens."""
        if request.host_blocks:
            request.block_table = self.pool.allocate(len(request.host_blocks))
            plan.swap_in += zip(request.host_blocks, request.block_table, strict=True)
            request.host_blocks = []  # they are free when they are copied: `copied`
        else:
            self.pool.share(shared)
            request.block_table = list(shared)
            request.num_computed_tokens = num_cached

    def needed(self, request: Request, num_tokens: int) -> int:
        """How many blocks the next `num_tokens` of a request take from the pool."""
        end = request.num_computed_tokens + num_tokens
        new = self.pool.blocks_for(end) - len(request.block_table)
        return max(new, 0) + self.writes_shared(request)

    def writes_shared(self, request: Request) -> bool:
        """Whether the next token goes to a block that somebody else holds too."""
        index, table = request.num_computed_tokens // self.pool.block_size, request.block_table
        return index < len(table) and self.pool.ref_counts[table[index]] > 1

    def take(self, plan: StepPlan, request: Request, num_tokens: int, needed: int) -> None:
        """Gives a request the `needed` blocks for its next `num_tokens`, and plans these.

        Nobody writes to a block that another one holds: it is copied first (copy on write).
        """
        if needed:
            blocks = self.pool.allocate(needed)
            if self.writes_shared(request):
                index = request.num_computed_tokens // self.pool.block_size
                original, copy = request.block_table[index], blocks.pop(0)
                plan.block_copies.append((original, copy))
                request.block_table[index] = copy
                self.pool.free([original])
            request.block_table += blocks
        plan.add(request, num_tokens)

    def can_swap_out(self, plan: StepPlan, request: Request) -> bool:
        """Whether the host has room for it, and it isn't just on its way back from there."""
        if self.host is None or request.num_computed_tokens == 0:
            return False
        fits = self.pool.blocks_for(request.num_computed_tokens) <= self.host.num_free
        return fits and not {block for _, block in plan.swap_in} & {*request.block_table}

    def swap_out(self, plan: StepPlan, request: Request) -> None:
        """What is computed of a request is copied to the host, and its blocks are free."""
        num_blocks = self.pool.blocks_for(request.num_computed_tokens)
        request.host_blocks = self.host.allocate(num_blocks)
        plan.swap_out += zip(request.block_table, request.host_blocks, strict=False)
        request.num_swaps += 1
        self.pool.free(request.block_table)
        request.block_table = []

    def copied(self, plan: StepPlan) -> None:
        """The step is over: the host's blocks of those that came back are free."""
        if plan.swap_in:
            self.host.free([block for block, _ in plan.swap_in])

    def release(self, request: Request) -> None:
        """It holds no block any more, of neither kind, and nothing of it is computed."""
        self.pool.free(request.block_table)
        if request.host_blocks:
            self.host.free(request.host_blocks)
        request.block_table, request.host_blocks = [], []
        request.num_computed_tokens = 0

    def note_computed(self, request: Request, chunk: Chunk) -> None:
        """The chunk's tokens are in the cache: blocks that it filled can be found from now on."""
        first, last = chunk.start // self.pool.block_size, chunk.end // self.pool.block_size
        request.num_computed_tokens = chunk.end
        if self.pool.prefix_caching and last > first:
            hashes = self.hashes(request, last)
            for i in range(first, last):
                self.pool.register(request.block_table[i], hashes[i])

    def hashes(self, request: Request, count: int) -> list[bytes]:
        """The hashes of the first `count` blocks of a request, which must be full."""
        hashes, size = request.block_hashes, self.pool.block_size
        for i in range(len(hashes), count):
            parent = hashes[-1] if hashes else root_hash(request.cache_salt)
            hashes.append(hash_block(parent, request.tokens_between(i * size, (i + 1) * size)))
        return hashes[:count]


def computed_parent(request: Request, running: Mapping[str, Request]) -> Request | None:
    """The running request that `request` is a copy of, if its prompt is computed.

    Its id may have been given to a stranger since, and a stranger's blocks are not shared.
    """
    parent = running.get(request.copy_of)
    if parent is None or parent.num_computed_tokens < parent.num_prompt_tokens:
        return None
    equal = parent.prompt_token_ids == request.prompt_token_ids
    return parent if equal and parent.cache_salt == request.cache_salt else None
