"""Notebook 04, the prefix cache: `Books.find_cached`."""

from labkit.workbook.registry import Case, Exercise, Mistake

YOU_ARE, A_HELPFUL, ASSISTANT = [11, 12, 13, 14], [21, 22, 23, 24], [31, 32, 33, 34]
CACHED = ((5, YOU_ARE), (2, A_HELPFUL))  # a sequence of two full blocks that somebody computed


def _find(prompt, output=(), later=(), cached=(CACHED,), salt="", enabled=True, held=()):
    """The blocks found for a request, and once more after it has got the tokens `later`.

    `cached` are the sequences in the prefix cache, each [(block, its tokens), ...],
    with None for a block that has been evicted; somebody holds those of `held`.
    """

    def observe(part):
        from labkit.engine.blocks import hash_block, root_hash
        from labkit.engine.request import Request

        pool = part.BlockPool(8, 4)
        for sequence in cached:
            block_hash = root_hash("")
            for block, token_ids in sequence:
                block_hash = hash_block(block_hash, token_ids)
                if block is not None:
                    pool.register(block, block_hash)
        pool.share(held)
        pool.prefix_caching = enabled
        books = part.Books(pool)
        request = Request("r", [*prompt], output_token_ids=[*output], cache_salt=salt)
        found = {"blocks found": list(books.find_cached(request))}
        if later:
            request.output_token_ids += later
            found["found once it is longer"] = list(books.find_cached(request))
        return found

    return observe


def _only_asked(part):
    from labkit.engine.blocks import hash_block, root_hash
    from labkit.engine.request import Request

    pool = part.BlockPool(4, 4)
    pool.register(2, hash_block(root_hash(""), YOU_ARE))
    part.Books(pool).find_cached(Request("r", [*YOU_ARE, 1]))
    return {"holders": list(pool.ref_counts), "free": list(pool.free_blocks)}


def _draw(expected, found):
    from labkit.workbook import drawings

    return drawings.block_tables(expected, found)


def _case(name, blocks, *, then=None, **situation):
    expected = {"blocks found": blocks}
    if then is not None:
        expected["found once it is longer"] = then
    return Case(name, _find(**situation), expected, _draw)


PREFIX = Exercise(
    id="04.5",
    module="labkit.engine.books",
    symbol="Books.find_cached",
    core=False,
    minutes=20,
    difficulty=2,
    cases=(
        _case("nothing_there", [], prompt=[*YOU_ARE, 1], cached=()),
        _case("one_block", [5], prompt=[*YOU_ARE, 1, 2]),
        _case("two_blocks", [5, 2], prompt=[*YOU_ARE, *A_HELPFUL, 1, 2, 3]),
        _case("one_token_more", [5, 2], prompt=[*YOU_ARE, *A_HELPFUL, 1]),
        _case("whole_prompt", [5], prompt=[*YOU_ARE, *A_HELPFUL]),
        _case("one_block_prompt", [], prompt=YOU_ARE),
        _case("after_a_preemption", [5, 2], prompt=YOU_ARE, output=[*A_HELPFUL, 1]),
        _case("all_but_the_last", [5], prompt=YOU_ARE, output=A_HELPFUL),
        _case("not_full_yet", [5], prompt=[*YOU_ARE, 21, 22], later=[23, 24, 1], then=[5, 2]),
        _case("other_beginning", [], prompt=[*ASSISTANT, *A_HELPFUL, 1]),
        _case(
            "equal_tokens_elsewhere",
            [5],
            prompt=[*YOU_ARE, *ASSISTANT, 1],
            cached=(CACHED, ((3, ASSISTANT),)),
        ),
        _case(
            "the_first_is_gone",
            [],
            prompt=[*YOU_ARE, *A_HELPFUL, 1],
            cached=(((None, YOU_ARE), (2, A_HELPFUL)),),
        ),
        _case("block_0", [0], prompt=[*YOU_ARE, 1], cached=(((0, YOU_ARE),),)),
        _case("held_by_another", [5, 2], prompt=[*YOU_ARE, *A_HELPFUL, 1], held=[5]),
        Case("only_asked", _only_asked, {"holders": [0] * 4, "free": [0, 1, 2, 3]}),
        _case("another_salt", [], prompt=[*YOU_ARE, *A_HELPFUL, 1], salt="tenant b"),
        _case("switched_off", [], prompt=[*YOU_ARE, *A_HELPFUL, 1], enabled=False),
    ),
    mistakes=(
        Mistake("whole_prompt_found", (("(request.num_tokens - 1)", "request.num_tokens"),)),
        Mistake(
            "partial_block_named",
            (
                (
                    "(request.num_tokens - 1) // self.pool.block_size",
                    "self.pool.blocks_for(request.num_tokens - 1)",
                ),
            ),
        ),
        Mistake("prompt_only", (("(request.num_tokens - 1)", "(request.num_prompt_tokens - 1)"),)),
        Mistake(
            "only_prompts_leave_one",
            (
                (
                    "(request.num_tokens - 1)",
                    "(request.num_tokens - (not request.output_token_ids))",
                ),
            ),
        ),
        Mistake(
            "last_block_given_up",
            (
                (
                    "(request.num_tokens - 1) // self.pool.block_size",
                    "max(request.num_tokens // self.pool.block_size - 1, 0)",
                ),
            ),
        ),
        Mistake(
            "gap_passed_over",
            (
                (
                    "return self.pool.find(self.hashes(request, num_full))",
                    "there = self.pool.block_of\n"
                    "    return [there[h] for h in self.hashes(request, num_full) if h in there]",
                ),
            ),
        ),
        Mistake("switch_ignored", (("if not self.pool.prefix_caching:", "if False:"),)),
        Mistake(
            "not_chained",
            (
                (
                    "self.hashes(request, num_full)",
                    "hash_block(root_hash(request.cache_salt), request.tokens_between("
                    "i * self.pool.block_size, (i + 1) * self.pool.block_size)) "
                    "for i in range(num_full)",
                ),
            ),
        ),
    ),
)

EXERCISES = (PREFIX,)
