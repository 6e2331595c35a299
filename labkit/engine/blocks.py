"""The KV cache in blocks: who holds which, what is free, and what can be found again.

A block has room for the keys and values of `block_size` consecutive tokens of one sequence, in
every layer. Paged memory is from Kwon et al., "Efficient Memory Management for Large Language
Model Serving with PagedAttention" (2023); finding blocks by a chain of hashes is vLLM's.
"""

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence


class OutOfBlocks(RuntimeError):
    """More blocks are asked for than are free."""


def hash_block(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """The name of a full block: 32 bytes over all the tokens up to its end.

    `parent` is the hash of the block before it, and of the salt (`root_hash`) for the first
    one. Keys and values depend on everything before them, so equal tokens after different
    beginnings are different blocks. BLAKE2b is strong enough that nobody finds two prefixes
    with one hash: with a weak one a stranger's text could be read out of the cache.
    """
    return hashlib.blake2b(parent + array("q", token_ids).tobytes(), digest_size=32).digest()


def root_hash(salt: str) -> bytes:
    """What the first block of a sequence has for a parent. Any text is a salt, as JSON has it."""
    return hashlib.blake2b(salt.encode(errors="surrogatepass"), digest_size=32).digest()


class BlockPool:
    """Gives out blocks by number, counts who holds them, and remembers what they contain.

    Every block is either free or held: `num_free + num_used == num_blocks`. A block that is
    free keeps its contents until it is given out again, so `free_blocks` is at the same time
    the order in which cached blocks are evicted, the next one first. All operations take
    constant time per block.
    """

    def __init__(self, num_blocks: int, block_size: int, prefix_caching: bool = True):
        if num_blocks < 1 or block_size < 1:
            raise ValueError(
                f"a pool of {num_blocks} blocks of {block_size} tokens holds nothing; "
                "both numbers must be at least 1"
            )
        self.num_blocks, self.block_size = num_blocks, block_size
        self.prefix_caching = prefix_caching
        self.ref_counts = [0] * num_blocks
        self.free_blocks: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self.hash_of: list[bytes | None] = [None] * num_blocks
        self.block_of: dict[bytes, int] = {}  # hash → the block that holds these tokens

    @property
    def num_free(self) -> int:
        return len(self.free_blocks)

    @property
    def num_used(self) -> int:
        return self.num_blocks - self.num_free

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks hold `num_tokens` tokens: the last one may be partly empty."""
        return -(-num_tokens // self.block_size)

    def allocate(self, count: int) -> list[int]:
        """Takes `count` blocks for one holder, those first in line of the free ones, in order.

        Each is held once from now on, and what it contained can't be found any more.

        Raises OutOfBlocks, and takes none, when fewer are free.
        """
        if count > self.num_free:
            raise OutOfBlocks(f"{count} blocks asked for, {self.num_free} free")
        block_ids = []
        for _ in range(count):
            block_id, _ = self.free_blocks.popitem(last=False)
            self.forget(block_id)
            self.ref_counts[block_id] = 1
            block_ids.append(block_id)
        return block_ids

    def free(self, block_ids: Sequence[int]) -> None:
        """One holder gives up `block_ids`, in the order of its block table.

        A block that nobody holds any more is free. Those that can be found again go to the
        end of the line for eviction, the last of the sequence first: a prefix is of use
        without what follows it, but not the other way round. The others go to its head, so that
        the block of the sequence's beginning is the next one. What blocks contain is kept.

        Raises ValueError for a block that nobody holds.
        """
        for block_id in reversed(block_ids):
            if self.ref_counts[block_id] == 0:
                raise ValueError(f"block {block_id} is free already; nobody holds it")
            self.ref_counts[block_id] -= 1
            if self.ref_counts[block_id] == 0:
                self.free_blocks[block_id] = None
                if self.hash_of[block_id] is None:
                    self.free_blocks.move_to_end(block_id, last=False)

    def share(self, block_ids: Iterable[int]) -> None:
        """One more holder for each of `block_ids`; a free one is free no longer."""
        for block_id in block_ids:
            if self.ref_counts[block_id] == 0:
                del self.free_blocks[block_id]
            self.ref_counts[block_id] += 1

    def register(self, block_id: int, block_hash: bytes) -> None:
        """Lets a full block be found by its hash. The first block with a hash stays the one."""
        if self.prefix_caching and block_hash not in self.block_of:
            self.forget(block_id)
            self.hash_of[block_id] = block_hash
            self.block_of[block_hash] = block_id

    def find(self, block_hashes: Iterable[bytes]) -> list[int]:
        """The blocks of the longest prefix of `block_hashes` that are there, free or held."""
        found = []
        for block_hash in block_hashes:
            if block_hash not in self.block_of:
                break
            found.append(self.block_of[block_hash])
        return found

    def num_free_in(self, block_ids: Iterable[int]) -> int:
        """How many of `block_ids` are free: sharing them takes as many from `num_free`."""
        return sum(self.ref_counts[block_id] == 0 for block_id in block_ids)

    def forget(self, block_id: int) -> None:
        """What the block contains can't be found any more."""
        block_hash = self.hash_of[block_id]
        if block_hash is not None:
            del self.block_of[block_hash]
            self.hash_of[block_id] = None

    def clear_cache(self) -> None:
        """Forgets every cached prefix; blocks in use stay with their holders."""
        for block_id in list(self.block_of.values()):
            self.forget(block_id)
