# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] lang="en"
# # 04 · Paged memory
#
# Early in 2025 vLLM had to publish a security advisory (GHSA-rm76-4mrf-v9r8) about its prefix cache.
# Blocks of memory were found by Python's built-in `hash()`, and since Python 3.12 one ingredient of
# that hash, `hash(None)`, is a constant that everybody knows. So it became feasible to write a
# prompt whose hash is that of somebody else's prompt, and to be given the stranger's memory, or to
# hand the stranger yours. At the end of this notebook you do the first on a real model, through
# another weak hash: you read a password out of it, and mend it.
#
# Why would a server let one request read memory that another one wrote? Because sharing, and
# handing memory out in small pieces, is what makes a large batch fit. That is what you build here.
#
# **After this notebook you can**
#
# - give the memory of a KV cache out in blocks, take it back, and say who is evicted next;
# - find the slot of any token through a block table, and compute attention over it;
# - reuse what another request has computed, and say when that is safe;
# - answer two of the ten questions with numbers of your own machine:
#   **3. Is batch size 4 production batching?** and **4. Does a larger batch always raise
#   throughput?**

# %% [markdown] lang="ko" of="b109c9f4"
# # 04 · 페이지로 나눈 메모리
#
# 2025년 초 vLLM은 접두사 캐시(prefix cache)에 관한 보안 권고(GHSA-rm76-4mrf-v9r8)를 내야 했습니다.
# 메모리 블록을 파이썬 내장 `hash()`로 찾았는데, 파이썬 3.12부터 그 해시의 재료 가운데 하나인
# `hash(None)`이 누구나 아는 상수가 되었습니다. 그래서 남의 프롬프트와 해시가 같은 프롬프트를 만들어
# 남의 메모리를 받아 내거나 자기 메모리를 남에게 넘기는 일이 가능해졌습니다. 이 노트북 끝에서 또 다른 약한
# 해시로, 진짜 모델에서 앞의 일을 해서 암호를 읽어 내고, 그다음 고칩니다.
#
# 서버는 왜 한 요청이 쓴 메모리를 다른 요청이 읽게 할까요? 메모리를 작은 조각으로 내주고 공유해야
# 큰 배치가 들어가기 때문입니다. 여기서 만드는 것이 바로 그것입니다.
#
# **이 노트북을 마치면**
#
# - KV 캐시의 메모리를 블록으로 내주고 돌려받으며, 다음에 무엇이 축출(eviction)될지 말할 수 있습니다.
# - 블록 테이블(block table)로 토큰의 슬롯을 찾고 그 위에서 어텐션을 계산할 수 있습니다.
# - 다른 요청이 계산한 것을 재사용하고, 언제 그래도 안전한지 말할 수 있습니다.
# - 열 가지 질문 중 두 개에 직접 잰 숫자로 답할 수 있습니다.
#   **3. 배치 크기 4가 프로덕션 배칭인가?** **4. 배치가 커지면 처리량은 항상 늘어나는가?**

# %% header minutes=10

# %% [markdown] lang="en"
# ## If you start here
#
# Three minutes on what the earlier notebooks have built. An **engine** takes requests in and gives
# events out: `add(request)`, then `step()` again and again, each step a forward pass and a new token
# for every running request. Keys and values of a token never change, so notebook 03 keeps them: a
# **KV cache**. There, each of the four requests of a batch owns one *row*, as long as the longest
# request may get:
#
# ```text
#            max_model_len = 24                         the same memory in blocks of 4
# row 0  a a a a a a a . . . . . . . . . . . . . . . .   0[a a a a] 1[b b b b] 2[a a a .] 3[b b . .]
# row 1  b b b b b b . . . . . . . . . . . . . . . . .   4[       ] 5[       ] ...
#
#        cache [rows, max_model_len]                     block tables  a: [0, 2]   b: [1, 3]
# ```
#
# A dot is a slot, room for the keys and values of one token, that nobody else may use. Rows waste
# most of them. Kwon et al. looked into the servers of 2023: **20.4 to 38.2%** of their KV memory
# held tokens (*Efficient Memory Management for Large Language Model Serving with PagedAttention*,
# SOSP 2023, section 1). Their cure is that of an operating system: pages.
#
# | name | shape | what it is |
# | --- | --- | --- |
# | pool, one layer | `[num_blocks, 2, kv_heads, block_size, head_dim]` | keys and values of all requests |
# | `block_table` | `[blocks of one request]` | entry i: which block holds tokens i · block_size and following |
# | slot | `block · block_size + offset` | the place of one token |
#
# `use(...)` supplies all that earlier notebooks have written.

# %% [markdown] lang="ko" of="a716ef77"
# ## 여기서 시작한다면
#
# 앞의 노트북들이 만든 것을 3분에 정리합니다. **엔진**은 요청을 받아 이벤트를 냅니다. `add(request)` 뒤에
# `step()`을 계속 부르며, 한 단계는 순전파 한 번이고 실행 중인 요청마다 새 토큰이 하나 나옵니다.
# 토큰의 키와 값은 변하지 않으므로 노트북 03에서는 이를 남겨 둡니다. 이것이 **KV 캐시**입니다. 거기서는
# 배치의 요청 네 개가 각각 *행* 하나를 가지며, 행의 길이는 가장 긴 요청이 될 수 있는 길이입니다.
#
# ```text
#            max_model_len = 24                         같은 메모리를 크기 4인 블록으로
# row 0  a a a a a a a . . . . . . . . . . . . . . . .   0[a a a a] 1[b b b b] 2[a a a .] 3[b b . .]
# row 1  b b b b b b . . . . . . . . . . . . . . . . .   4[       ] 5[       ] ...
#
#        cache [rows, max_model_len]                     block tables  a: [0, 2]   b: [1, 3]
# ```
#
# 점은 슬롯(slot), 곧 토큰 하나의 키와 값이 들어갈 자리이고 다른 누구도 쓸 수 없습니다. 행 방식은 대부분을
# 낭비합니다. Kwon 등이 2023년의 서버들을 조사했더니 KV 메모리의 **20.4–38.2%**만 토큰을 담고 있었습니다
# (*Efficient Memory Management for Large Language Model Serving with PagedAttention*, SOSP 2023, 1절).
# 해결책은 운영체제에서 빌려 온 페이지입니다.
#
# | 이름 | 모양 | 뜻 |
# | --- | --- | --- |
# | 풀(pool), 레이어 하나 | `[num_blocks, 2, kv_heads, block_size, head_dim]` | 모든 요청의 키와 값 |
# | `block_table` | `[요청 하나의 블록 수]` | i번째 항목: 토큰 i · block_size부터를 담은 블록 번호 |
# | 슬롯 | `block · block_size + offset` | 토큰 하나의 자리 |
#
# 앞 노트북에서 작성한 것은 모두 `use(...)`가 제공합니다.

# %% tags=["nbval-ignore-output"]
from labkit.model import best_device, load, load_decoder

device = best_device()
smol = load_decoder("smollm2-135m", device=device)
config = smol.model.config
print("layers, kv_heads, head_dim:", config.num_layers, config.num_kv_heads, config.head_dim)

# %% [markdown] lang="en"
# ## A pool of blocks
#
# The pool knows numbers, not tensors: block 5 is free, block 2 is held by two requests. Every block
# is either free or held, at every moment. And the line of free blocks is more than a line: a block
# keeps its contents until it is given out again, so the same line says who is evicted next.

# %% [markdown] lang="ko" of="1efdfa5d"
# ## 블록의 풀
#
# 풀은 텐서가 아니라 번호를 압니다. 블록 5는 비어 있고, 블록 2는 요청 둘이 쥐고 있다는 식입니다. 모든
# 블록은 어느 순간에나 비어 있거나 누군가 쥐고 있습니다. 빈 블록의 줄은 단순한 줄이 아닙니다. 블록은
# 다시 내줄 때까지 내용을 간직하므로, 이 줄이 곧 다음에 무엇이 축출될지를 말해 줍니다.

# %% show="labkit.engine.blocks:BlockPool"

# %% [markdown] lang="en"
# Giving blocks out has one rule that is easily broken: **all or nothing**. A request that gets two of
# the three blocks it asked for can't run, and can't give anybody else its two.

# %% [markdown] lang="ko" of="c821194f"
# 블록을 내줄 때 깨지기 쉬운 규칙이 하나 있습니다. **전부 아니면 전무**입니다. 세 개를 요청해 두 개만 받은
# 요청은 실행될 수도 없고, 그 두 개를 남에게 줄 수도 없습니다.

# %% exercise="04.1"

# %% [markdown] lang="en"
# A pool of six blocks of four slots. Ten tokens need three blocks; four more blocks are too many.

# %% [markdown] lang="ko" of="3e534b21"
# 슬롯 네 개짜리 블록이 여섯 개인 풀입니다. 토큰 열 개에는 블록 세 개가 필요하고, 거기서 네 개 더는
# 너무 많습니다.

# %% tags=["nbval-ignore-output"]
BlockPool = use("04.1")

# %%
pool = BlockPool(num_blocks=6, block_size=4)
table = pool.allocate(pool.blocks_for(10))
print("block table for 10 tokens:", table, " free:", list(pool.free_blocks))
try:
    pool.allocate(4)
except Exception as error:
    print("4 more:", type(error).__name__, " free:", list(pool.free_blocks))

# %% [markdown] lang="en"
# ## Taking them back
#
# Several requests may hold one block: those that begin with the same text. So a block is free when
# the *last* of them has given it up. Where it then stands in line decides what the server
# remembers:
#
# - a block that can't be found again (not full, or never named) is worth nothing: to the head;
# - a full block of a sequence may be wanted again: to the end of the line;
# - and of one sequence the last block first, since a prefix is of use without what follows it, but
#   not the other way round.

# %% [markdown] lang="ko" of="102dc703"
# ## 돌려받기
#
# 같은 글로 시작하는 요청들은 블록 하나를 함께 쥘 수 있습니다. 그래서 블록은 그중 *마지막* 요청이 놓았을 때
# 비게 됩니다. 그때 줄의 어디에 서느냐가 서버가 무엇을 기억할지를 정합니다.
#
# - 다시 찾을 수 없는 블록(덜 찼거나 이름이 없는 블록)은 가치가 없으므로 줄 맨 앞으로.
# - 시퀀스의 가득 찬 블록은 다시 쓰일 수 있으므로 줄 끝으로.
# - 한 시퀀스 안에서는 마지막 블록부터. 접두사는 뒷부분 없이도 쓸모가 있지만 그 반대는 아니기 때문입니다.

# %% exercise="04.2"

# %% [markdown] lang="en"
# A sequence of three blocks, the last one half full. The half-full one goes first, then the blocks
# that were never used, and the beginning of the sequence stays longest.

# %% [markdown] lang="ko" of="02f041a8"
# 블록 세 개짜리 시퀀스이고 마지막 블록은 반만 찼습니다. 반만 찬 블록이 먼저 나가고, 그다음 한 번도 쓰지
# 않은 블록들, 시퀀스의 처음이 가장 오래 남습니다.

# %% tags=["nbval-ignore-output"]
BlockPool = use("04.2")

# %%
pool = BlockPool(num_blocks=6, block_size=4)
table = pool.allocate(3)
pool.register(table[0], b"you are")
pool.register(table[1], b"you are a helpful")
pool.free(table)
print("line of free blocks:  ", list(pool.free_blocks))
found = pool.find([b"you are", b"you are a helpful"])
pool.share(found)
pool.share(found)
pool.free(found)
print("found and held by one:", found, " free:", list(pool.free_blocks))

# %% [markdown] lang="en"
# ## Where is token 6?
#
# A forward pass writes the keys and values of its new tokens into the pool. It needs one number a
# token, the **slot**. The position says which entry of the block table (`position // block_size`)
# and where in that block (`position % block_size`); the table says which block.

# %% [markdown] lang="ko" of="929e68d1"
# ## 6번 토큰은 어디에 있는가
#
# 순전파는 새 토큰의 키와 값을 풀에 씁니다. 토큰마다 숫자 하나, **슬롯**이 필요합니다. 위치는 블록
# 테이블의 몇 번째 항목인지(`position // block_size`)와 블록 안의 어디인지(`position % block_size`)를
# 말하고, 어느 블록인지는 테이블이 말합니다.

# %% exercise="04.3"

# %% tags=["nbval-ignore-output"]
slots_of = use("04.3")

# %%
block_table = [5, 0, 3]
for start, end, what in ((0, 5, "a prompt of 5 tokens"), (5, 6, "the next token"), (8, 9, "later")):
    print(f"{what:21} positions {start} to {end - 1}: slots {slots_of(block_table, start, end, 4)}")

# %% [markdown] lang="en"
# ## Attention over a block table
#
# Reading is the mirror of writing. For each request: take its row of `block_tables`, gather those
# blocks, put their tokens in order, attend. The shapes: `q` is `[T, heads, head_dim]`, the new tokens
# of all requests one after the other; `kv` is one layer of the pool; a gathered sequence is
# `[2, kv_heads, context_len, head_dim]`.
#
# Two details decide between right and dangerous. Rows of `block_tables` are padded to equal length
# with 0, and block 0 is somebody's block. And the last block of a sequence is mostly not full: behind
# the end lies what an earlier owner left there.

# %% [markdown] lang="ko" of="46dc312a"
# ## 블록 테이블 위의 어텐션
#
# 읽기는 쓰기의 거울입니다. 요청마다 `block_tables`의 자기 행을 취하고, 그 블록들을 모아(gather) 토큰을
# 순서대로 놓은 뒤 어텐션을 계산합니다. 모양은 이렇습니다. `q`는 `[T, heads, head_dim]`으로 모든 요청의
# 새 토큰을 이어 놓은 것이고, `kv`는 풀의 레이어 하나, 모은 시퀀스는 `[2, kv_heads, context_len, head_dim]`입니다.
#
# 두 가지가 옳은 것과 위험한 것을 가릅니다. `block_tables`의 행은 길이를 맞추려고 0으로 채워져 있는데
# 블록 0은 누군가의 블록입니다. 그리고 시퀀스의 마지막 블록은 대개 덜 차 있어서, 끝 뒤에는 예전 주인이
# 남긴 것이 있습니다.

# %% show="labkit.kernels.reference:gather"

# %% show="labkit.kernels.reference:PagedAttention"

# %% exercise="04.4"

# %% [markdown] lang="en"
# Does a whole model over your attention say what it should? `tiny` runs three prompts at once in
# blocks of 4, and `transformers`, which knows no blocks, runs each alone.

# %% [markdown] lang="ko" of="d5f1ab62"
# 이 어텐션 위에서 모델 전체가 맞는 답을 할까요? `tiny`가 크기 4인 블록 위에서 프롬프트 셋을 한꺼번에
# 돌리고, 블록을 모르는 `transformers`는 하나씩 돌립니다.

# %% tags=["nbval-ignore-output"]
PagedAttention = use("04.4")

# %%
from labkit.engine.paged import PagedEngine
from labkit.engine.request import Request
from labkit.measure.generation import generate
from labkit.model import loading

tiny = load("tiny", device=device)
textbook = loading.load_decoder("tiny", device=device, attention="torch")
textbook.model.attention = PagedAttention
engine = PagedEngine(textbook.model, (), num_blocks=32, block_size=4)
words = ("a", "paged", "한글")
requests = [Request(word, tiny.tokenizer.encode(word), max_tokens=6) for word in words]
for request in requests:
    engine.add(request)
while engine.has_unfinished():
    engine.step()
for request in requests:
    alone = generate(tiny.model, request.prompt_token_ids, 6, use_cache=True)
    print(f"{request.output_token_ids}  as transformers: {request.output_token_ids == alone}")

# %% [markdown] lang="en"
# ## Finding what is computed already
#
# Most requests of a service begin alike: the operator's instructions, then the question. Keys and
# values depend on the tokens up to theirs and on nothing else, so equal beginnings have equal
# blocks. To find one it needs a name that says *all tokens up to its end*. The name is a hash over
# the parent's name and the block's own tokens: a chain.

# %% [markdown] lang="ko" of="ee64488e"
# ## 이미 계산된 것 찾기
#
# 서비스의 요청은 대부분 똑같이 시작합니다. 운영자의 지시문이 먼저 오고 질문이 뒤따릅니다. 키와 값은
# 자기까지의 토큰에만 달려 있으므로 시작이 같으면 블록도 같습니다. 블록을 찾으려면 *그 끝까지의 모든
# 토큰*을 말하는 이름이 필요합니다. 이름은 부모의 이름과 블록 자신의 토큰을 합친 해시, 곧 사슬입니다.

# %% show="labkit.engine.blocks:hash_block"

# %%
from labkit.engine.blocks import hash_block, root_hash

question = [31, 32, 33, 34]
for beginning in ([11, 12, 13, 14], [21, 22, 23, 24]):
    first = hash_block(root_hash(""), beginning)
    print(beginning, question, "→", first.hex()[:8], hash_block(first, question).hex()[:8])
salted = hash_block(root_hash("tenant b"), [11, 12, 13, 14])
print([11, 12, 13, 14], "with the salt 'tenant b' →", salted.hex()[:8])

# %% [markdown] lang="en"
# The same four tokens after another beginning: another name. Now look a request up. One detail has
# stopped real servers: when *everything* is found, no token is left to compute, and without a forward
# pass there are no logits to choose the next token from.
#
# At hand: `self.pool`, your `BlockPool` (`find`, `block_size`, `prefix_caching`), and
# `self.hashes(request, count)`, the names of the request's first `count` blocks.

# %% [markdown] lang="ko" of="659351cb"
# 같은 토큰 네 개라도 시작이 다르면 이름이 다릅니다. 이제 요청을 찾아봅니다. 실제 서버를 멈추게 한 점이
# 하나 있습니다. *전부* 찾으면 계산할 토큰이 남지 않고, 순전파가 없으면 다음 토큰을 고를 로짓도 없습니다.
#
# 쓸 수 있는 것: `self.pool`, 여러분의 `BlockPool`(`find`, `block_size`, `prefix_caching`)과
# `self.hashes(request, count)`, 요청의 앞쪽 블록 `count`개의 이름.

# %% exercise="04.5"

# %% tags=["nbval-ignore-output"]
Books = use("04.5")

# %%
pool = BlockPool(num_blocks=8, block_size=4)
books = Books(pool)
name, held = root_hash(""), pool.allocate(2)
for block, tokens in zip(held, ([11, 12, 13, 14], [21, 22, 23, 24]), strict=True):
    name = hash_block(name, tokens)
    pool.register(block, name)
both = [11, 12, 13, 14, 21, 22, 23, 24]
for prompt in ([*both, 1], both, [21, 22, 23, 24, 1]):
    found = books.find_cached(Request("r", prompt))
    left = len(prompt) - 4 * len(found)
    print(f"{len(prompt)} tokens, blocks found: {found!s:6}  left to compute: {left}")

# %% [markdown] lang="en"
# ## The pool, X-rayed
#
# Sixteen blocks of four slots, with your pool and your books: four requests come and go. A block has
# the colour and name of its holder, two names where it is shared; the pale part holds no token yet; a
# grey one is free and can still be found. Look for the hole that one request leaves and another
# fills. The last state is an invalid access: a token is written before there is a block for it.

# %% [markdown] lang="ko" of="e5e1b15c"
# ## 풀의 엑스레이
#
# 여러분의 풀과 장부로 슬롯 네 개짜리 블록 열여섯 개를 봅니다. 요청 넷이 들어오고 나갑니다. 블록은 쥔
# 요청의 색과 이름을 가지며, 공유되면 이름이 둘입니다. 옅은 부분에는 아직 토큰이 없고, 회색 블록은 비어
# 있지만 다시 찾을 수 있습니다. 한 요청이 남긴 구멍을 다른 요청이 메우는 모습을 찾아보세요. 마지막 상태는
# 잘못된 접근입니다. 블록이 생기기 전에 토큰을 쓰려 합니다.

# %% tags=["nbval-ignore-output"]
from labkit.workbook.figures.paging_story import pool_story
from labkit.workbook.widgets import block_xray

BlockPool, Books = use("04.2"), use("04.5")
block_xray(pool_story(BlockPool, Books), "16 blocks of 4 slots")

# %% [markdown] lang="en"
# ## Experiment A: how much of the memory holds tokens?
#
# A hundred conversations with lengths like those of Azure's chat service (about 1,000 tokens in and
# 200 out, drawn from a seed with the trace's quantiles), at most 4,096 tokens each. With rows every
# one of them reserves 4,096 slots. With blocks it holds what its tokens fill, and half a block of
# loss on average. Questions 3 and 4, below, both rest on this.
#
# **Predict.** Which share of the slots in rows of 4,096 does no token ever fill?

# %% [markdown] lang="ko" of="93bb5d31"
# ## 실험 A: 메모리의 얼마가 토큰을 담고 있는가?
#
# Azure 채팅 서비스와 길이가 비슷한 대화 백 개입니다(입력 약 1,000토큰, 출력 약 200토큰. 트레이스의
# 분위수대로 seed에서 뽑음). 하나는 최대 4,096토큰입니다. 행 방식에서는 각각 슬롯 4,096개를 예약합니다.
# 블록 방식에서는 토큰이 채운 만큼만 쥐고, 평균 반 블록을 잃습니다. 아래의 질문 3과 4가 모두 여기에 달려 있습니다.
#
# **예측.** 4,096짜리 행의 슬롯 가운데 어떤 토큰도 채우지 않는 비율은 얼마일까요?

# %% tags=["nbval-ignore-output"]
predict("04.unused", low=0, high=100, unit="% of the slots")

# %% [markdown] lang="en"
# **Run.** The rows are arithmetic. For the blocks labkit's scheduler runs all requests over your pool,
# on a virtual clock, and what each holds in its last step is counted.

# %% [markdown] lang="ko" of="a320033d"
# **실행.** 행은 산수로 계산합니다. 블록은 labkit의 스케줄러가 가상 시계 위에서 여러분의 풀로 모든 요청을
# 돌리고, 각 요청이 마지막 단계에 쥔 것을 셉니다.

# %% tags=["nbval-ignore-output"]
from labkit.measure.experiments.paging import conversations, unused_by_blocks, unused_by_rows
from labkit.workbook.figures.paging import unused_figure

lengths = conversations(100)
in_rows = unused_by_rows(lengths)
in_blocks = [
    unused_by_blocks(BlockPool(2**18 // size, size, prefix_caching=False), lengths)
    for size in (8, 16, 32, 64, 128)
]
unused_figure(in_rows, in_blocks)

# %% tags=["nbval-ignore-output"]
compare("04.unused", 100 * in_rows["unused_share"], "% of the slots")

# %% [markdown] lang="en"
# **Compare.** Rows land in the grey band, where the paper found the servers of 2023. Blocks of 16
# lose less than one percent here. Smaller blocks lose less still, but the tables grow and a kernel
# reads shorter pieces: the paper found 16 to be a good middle, and vLLM's default is still 16.
#
# ## Experiment B: the same memory, rows and blocks
#
# **Question 4: does a larger batch always raise throughput?** The study group's short answer: *at
# first; then memory, KV pressure, queue latency and out-of-memory; the best point balances
# throughput and the latency SLO.* Here the memory is fixed and the layout decides how large a batch
# can be. Sixteen conversations, all lengths divided by 16 so that a laptop can compute them, arrive at
# once. The KV cache has 1,024 slots: four rows of 256, or 64 blocks of 16.
#
# **Predict.** How many times as many tokens per second does the engine with blocks make?

# %% [markdown] lang="ko" of="c93572a3"
# **비교.** 행은 논문이 2023년 서버들을 찾은 회색 띠 안에 들어갑니다. 크기 16인 블록은 여기서 1%도 잃지 않습니다.
# 블록이 더 작으면 더 적게 잃지만 테이블이 길어지고 커널이 읽는 조각이 짧아집니다. 논문은 16을 적당한
# 중간으로 보았고 vLLM의 기본값은 지금도 16입니다.
#
# ## 실험 B: 같은 메모리, 행과 블록
#
# **질문 4: 배치가 커지면 처리량은 항상 늘어나는가?** 스터디 그룹의 짧은 답은 *처음에는 그렇다. 그 뒤에는
# 메모리, KV 압박, 대기 지연, OOM이 온다. 처리량과 지연 SLO의 균형이 맞는 점이 가장 좋다* 입니다. 여기서는
# 메모리를 고정하고, 배치가 얼마나 커질 수 있는지를 메모리 구조(layout)가 정합니다. 노트북 컴퓨터에서
# 계산할 수 있도록 길이를 모두 16으로 나눈 대화 열여섯 개가 한꺼번에 도착합니다. KV 캐시는 슬롯 1,024개, 곧 256짜리
# 행 네 개이거나 크기 16인 블록 64개입니다.
#
# **예측.** 블록을 쓰는 엔진은 초당 토큰을 몇 배 만들까요?

# %% tags=["nbval-ignore-output"]
predict("04.throughput", low=0.5, high=8, unit="times the tokens/s")

# %% [markdown] lang="en"
# **Run.** Three engines with the real model: rows; blocks in the same memory; blocks in half of it. The
# two with blocks may take up to 64 requests, and run over your pool.

# %% [markdown] lang="ko" of="fc4526ca"
# **실행.** 진짜 모델로 엔진 셋을 돌립니다. 행, 같은 메모리의 블록, 그 절반 메모리의 블록입니다. 블록을
# 쓰는 둘은 요청을 64개까지 받을 수 있고 여러분의 풀 위에서 돕니다.

# %% tags=["nbval-ignore-output"]
from labkit import rungs
from labkit.measure.experiments.paging import drive, requests_of
from labkit.workbook.figures.paging import same_memory_figure

text = smol.tokenizer.encode("The wind comes from the north and the sea is calm today. " * 12)
small = conversations(16, shrink=16)
slots = {"rows": 1024, "blocks": 1024, "blocks, half the memory": 512}
runs = {}
for name, num_slots in slots.items():
    if name == "rows":
        engine = rungs.make("cached", smol, max_num_seqs=num_slots // 256, max_model_len=256)
    else:
        engine = rungs.make("paged", smol, num_blocks=num_slots // 16, max_num_seqs=64)
        engine.pool = BlockPool(num_slots // 16, 16, prefix_caching=False)
    requests = requests_of(small, lambda number, count: text[number : number + count])
    runs[name] = drive(name, engine, requests)
    run = runs[name]
    print(
        f"{name:23} {run.num_steps:3} steps of {1e3 * run.seconds_per_step:4.0f} ms on average; "
        f"{100 * run.unused_share:.0f}% of the slots held by requests were empty"
    )
same_memory_figure(runs.values(), slots)

# %% tags=["nbval-ignore-output"]
speedup = runs["blocks"].tokens_per_s / runs["rows"].tokens_per_s
compare("04.throughput", speedup, "times the tokens/s")

# %% [markdown] lang="en"
# **Compare.** This *sharpens* the group's answer three times. How large a batch fits is decided by the
# layout before it is decided by the memory: half the memory in blocks holds a larger batch than all of
# it in rows. Throughput follows the batch, but not all the way: a larger batch takes fewer steps, and
# each of them takes longer (both are printed above the figure). And when a pool is too small, nothing
# fails: requests wait in line, and that shows in TTFT, not in ITL. (An engine that admits more than it
# can hold to the end must preempt; that is notebook 08.)
#
# ## Experiment C: how many run at once?
#
# **Question 3: is batch size 4 production batching?** The group's answer: *good for learning; in
# production total tokens, context length, KV use and memory decide, and engines batch by tokens.* One
# pool, 64 blocks of 16, and requests of three lengths.
#
# **Predict.** How many requests of 200 tokens run at once in these 1,024 slots?

# %% [markdown] lang="ko" of="a98aa266"
# **비교.** 그룹의 답을 세 번 *더 정확하게* 합니다. 얼마나 큰 배치가 들어가는지는 메모리의 양보다
# 먼저 메모리 구조(layout)가 정합니다. 절반 메모리의 블록이 전체 메모리의 행보다 큰 배치를 담습니다. 처리량은 배치를
# 따라가지만 끝까지는 아닙니다. 배치가 크면 단계 수는 줄고 단계마다 더 오래 걸립니다(둘 다 그림 위에
# 출력했습니다). 그리고 풀이 작아도 아무것도 실패하지 않습니다. 요청이 줄에서 기다릴 뿐이고, 이는 ITL이
# 아니라 TTFT에 나타납니다. (끝까지 담을 수 있는 것보다 많이 받는 엔진은 선점(preemption)해야 하며, 노트북
# 08에서 다룹니다.)
#
# ## 실험 C: 한꺼번에 몇 개가 실행되는가?
#
# **질문 3: 배치 크기 4가 프로덕션 배칭인가?** 그룹의 답은 *배우기에는 좋다. 프로덕션에서는 전체 토큰 수,
# 컨텍스트 길이, KV 사용량, 메모리가 결정하고, 엔진은 토큰 단위로 배치를 만든다* 입니다. 크기 16인 블록 64개의 풀
# 하나에 길이가 세 가지인 요청을 넣습니다.
#
# **예측.** 이 슬롯 1,024개에서 200토큰짜리 요청은 한꺼번에 몇 개 실행될까요?

# %% tags=["nbval-ignore-output"]
predict("04.at_once", low=1, high=64, unit="requests at once", step=1)

# %%
at_once = {}
for length in (40, 200, 1000):
    engine = PagedEngine(textbook.model, (), num_blocks=64, block_size=16, batch_size=1000)
    for number in range(100):
        engine.add(Request(f"r{number}", [1] * (length - 8), max_tokens=9))
    batch = engine.next_batch()
    at_once[length] = len(batch)
    used = sum(engine.most_blocks(request) for request in batch)
    print(f"{length:5} tokens each: {len(batch):3} at once, {used} of 64 blocks")

# %% tags=["nbval-ignore-output"]
from labkit.workbook.figures.paging import at_once_figure

at_once_figure(at_once, 1024, 16)

# %% tags=["nbval-ignore-output"]
compare("04.at_once", at_once[200], "requests at once")

# %% [markdown] lang="en"
# **Compare.** The answer is *supported*: 4 is right for one length, a fifth of what fits for
# another, and four times too many for a third. A batch size is not a property of a server. Its
# memory is, in tokens.
#
# ## Experiment D: the same beginning, twice
#
# A shop's assistant has some 250 tokens of instructions before every question. Two customers ask, one
# after the other, on the rung that notebook 06 builds, which has the prefix cache.
#
# **Predict.** How many times sooner does the second customer have the first token, with the cache?

# %% [markdown] lang="ko" of="47844f5d"
# **비교.** 답은 *뒷받침*됩니다. 4는 한 길이에는 맞고, 다른 길이에는 들어갈 수 있는 수의 5분의 1이며, 또
# 다른 길이에는 네 배나 많습니다. 배치 크기는 서버의 속성이 아닙니다. 토큰으로 센 메모리가 서버의 속성입니다.
#
# ## 실험 D: 같은 시작을 두 번
#
# 어느 가게의 어시스턴트는 모든 질문 앞에 250토큰쯤 되는 지시문을 붙입니다. 손님 둘이 차례로 묻습니다.
# 노트북 06에서 만들, 접두사 캐시가 있는 단(rung)의 엔진을 씁니다.
#
# **예측.** 캐시가 있으면 두 번째 손님의 첫 토큰은 몇 배 빨리 나올까요?

# %% tags=["nbval-ignore-output"]
predict("04.prefix", low=1, high=20, unit="times sooner")

# %% tags=["nbval-ignore-output"]
from labkit.measure.experiments.paging import RULES, chat, first_token
from labkit.workbook.figures.paging import prefix_figure

questions = ("What does a cargo bike cost for two days?", "Do you mend flat tyres?")
seen = {}
warm_up = rungs.make("continuous", smol, num_blocks=64)
first_token("warm-up", warm_up, Request("warm-up", text[:160], max_tokens=2))
for caching in (False, True):
    engine = rungs.make("continuous", smol, num_blocks=64, prefix_caching=caching)
    pool = BlockPool(64, 16, prefix_caching=caching)
    engine.scheduler.pool = pool
    engine.scheduler.books = Books(pool)
    for number, question in enumerate(questions, 1):
        name = f"customer {number}, {'prefix cache' if caching else 'no cache'}"
        request = Request(name, chat(smol, RULES, question), max_tokens=4)
        seen[caching, number] = first_token(name, engine, request)
prefix_figure(list(seen.values()))

# %% tags=["nbval-ignore-output"]
sooner = seen[False, 2].ttft / seen[True, 2].ttft
compare("04.prefix", sooner, "times sooner")

# %% [markdown] lang="en"
# **Compare.** The cache saves prefill, so it shows in TTFT; it does nothing for ITL. It also saves
# memory: two customers at once hold the instructions once. And it saves nothing when beginnings
# differ in their first token, as when an operator puts the time of day at the top of the prompt.

# %% [markdown] lang="ko" of="fff1b96a"
# **비교.** 캐시는 프리필(prefill)을 아끼므로 TTFT에 나타나고, ITL에는 아무 영향이 없습니다. 메모리도
# 아낍니다. 손님 둘이 동시에 있어도 지시문은 하나만 담습니다. 그러나 첫 토큰부터 다르면 아무것도 아끼지 못합니다. 운영자가 프롬프트 맨
# 위에 현재 시각을 넣는 경우가 그렇습니다.

# %% [markdown] lang="en"
# ## What breaks
#
# **1. A weak hash: a stranger's text.** Megatron-LM's inference named blocks by a polynomial hash until
# 2026 (NVIDIA/Megatron-LM, pull request 4158). One less at some token and 31 more at the next is the
# same number:

# %% [markdown] lang="ko" of="3f0e5e44"
# ## 무엇이 깨지는가
#
# **1. 약한 해시: 남의 글.** Megatron-LM의 추론 코드는 2026년까지 블록 이름을 다항식 해시로 지었습니다
# (NVIDIA/Megatron-LM, pull request 4158). 한 토큰을 1 줄이고 다음 토큰을 31 늘리면 같은 수가 됩니다.

# %%
from labkit.measure.experiments.weak_hash import WeakBooks, polynomial_hash, twin

print("polynomial:", polynomial_hash(0, [50, 60, 70]), polynomial_hash(0, [49, 91, 70]))
for tokens in ([50, 60, 70], [49, 91, 70]):
    print("BLAKE2b:   ", hash_block(root_hash(""), tokens).hex()[:16])

# %% [markdown] lang="en"
# Alice tells the model her password. The block of those 16 tokens stays in the cache. Then a stranger
# sends 16 *other* tokens, forged to have the same hash, and asks. With the weak hash the server finds
# Alice's block under the stranger's name, skips the forged tokens, and the model reads Alice's keys and
# values.

# %% [markdown] lang="ko" of="12e6e75c"
# 앨리스가 모델에게 암호를 알려 줍니다. 그 16토큰의 블록은 캐시에 남습니다. 이어서 낯선 사람이 해시가 같도록
# 위조한 *다른* 토큰 16개를 보내고 묻습니다. 약한 해시에서는 서버가 낯선 사람의 이름으로 앨리스의 블록을
# 찾고, 위조한 토큰은 건너뛰며, 모델은 앨리스의 키와 값을 읽습니다.

# %% tags=["nbval-ignore-output"]
secret = smol.tokenizer.encode("The password of Alice is swordfish." * 3)[:16]
asked = smol.tokenizer.encode(" The password of Alice is")
forged = twin(secret, config.vocab_size)
print("the stranger sends:", repr(smol.tokenizer.decode(forged + asked)))
for kind in (WeakBooks, Books):
    engine = rungs.make("continuous", smol, num_blocks=16)
    engine.scheduler.books = kind(engine.scheduler.pool)
    for who, prompt in (("alice", secret + asked), ("stranger", forged + asked)):
        request = Request(who, prompt, max_tokens=3)
        first_token(who, engine, request)
        said = repr(smol.tokenizer.decode(request.output_token_ids))
        found = request.num_cached_tokens
        print(f"{kind.__name__:9} {who:9} {found:2} tokens found, answer {said}")

# %% [markdown] lang="en"
# Mended by a hash that nobody can forge: BLAKE2b over the parent and the tokens. What is left is the
# clock: who sends a *guess* of another's prompt learns from a short TTFT that it was right. Tenants
# who must not learn even that get different salts (`cache_salt`, as in vLLM), and share nothing.
#
# **2. NaN behind the end.** The first attention kernels of vLLM gave slots behind the end of a sequence
# the weight 0 and read them all the same (vllm-project/vllm, pull request 936). What lies there
# is whatever an earlier owner left, and 0 times NaN is NaN.

# %% [markdown] lang="ko" of="40fb7590"
# 아무도 위조할 수 없는 해시, 곧 부모와 토큰 위의 BLAKE2b로 고쳤습니다. 남은 것은 시계입니다. 남의 프롬프트를
# *추측해* 보낸 사람은 TTFT가 짧은 것을 보고 맞았음을 압니다. 그것조차 알면 안 되는 테넌트들은 서로 다른
# 솔트(`cache_salt`, vLLM에도 있음)를 쓰고 아무것도 공유하지 않습니다.
#
# **2. 끝 뒤의 NaN.** vLLM의 첫 어텐션 커널은 시퀀스 끝 뒤의 슬롯에 가중치 0을 주면서도 그대로 읽었습니다
# (vllm-project/vllm, pull request 936). 거기에는 예전 주인이 남긴 것이 있고, 0 곱하기 NaN은 NaN입니다.

# %%
import torch

# A block of 4 with two tokens in it, and the scores of a query that masks the rest.
values = torch.tensor([1.0, 3.0, float("nan"), float("nan")], device=device)
scores = torch.tensor([0.0, 0.0, -torch.inf, -torch.inf], device=device)
weights = scores.softmax(0)
print("weights:           ", weights.tolist())
print("masked by weight 0:", float(weights @ values))
print("cut at the end:    ", float(weights[:2] @ values[:2]))

# %% [markdown] lang="en"
# **3. A block freed twice.** "ValueError: Double free!" stopped vLLM for a number of its users in
# 2023 (vllm-project/vllm, issues 1556 and 1584), and some silenced it. Your pool refuses what it can
# see: a block that nobody holds. But look what it can't see. If the block was given out again in
# between, it has a holder, and the pool can't tell that it is not the caller.

# %% [markdown] lang="ko" of="114be829"
# **3. 두 번 해제된 블록.** 2023년 vLLM의 여러 사용자가 "ValueError: Double free!"로 서버가 멈추는 일을
# 겪었고(vllm-project/vllm, 이슈 1556과 1584) 그 오류를 지워 버린 사람도 있었습니다. 여러분의 풀은 볼 수
# 있는 것, 곧 아무도 쥐지 않은 블록은 거절합니다. 그러나 볼 수 없는 것이 있습니다. 그 사이 블록을 다시
# 내주었다면 쥔 쪽이 있고, 풀은 그것이 부른 쪽인지 아닌지 알 수 없습니다.

# %%
pool = BlockPool(num_blocks=6, block_size=4)
a, b, c = (Request(name, [1, 2, 3, 4, 5, 6]) for name in "abc")
a.block_table = pool.allocate(2)
pool.free(a.block_table)
try:
    pool.free(a.block_table)
except ValueError:
    print("a frees again at once:      refused")
b.block_table = pool.allocate(2)
pool.free(a.block_table)
c.block_table = pool.allocate(2)
print("a frees again after b came: accepted; b has", b.block_table, "and c has", c.block_table)

# %% tags=["nbval-ignore-output"]
from labkit.workbook.figures.xray import xray_figure, xray_of

for request in (b, c):
    request.num_computed_tokens = 6
note = "Freed twice: b and c write over each other."
xray_figure(xray_of(pool, [b, c], bad=("c", 0), note=note), "One block, two owners")

# %% [markdown] lang="en"
# Mended where it begins: whoever frees a table empties it in the same breath, in *one* place of the
# engine. Freeing an empty table is harmless, however often it happens.

# %% [markdown] lang="ko" of="ccad57ad"
# 시작되는 곳에서 고칩니다. 테이블을 해제하는 쪽은 그 자리에서 테이블을 비우고, 엔진에서 그런 곳은 *하나*뿐이어야
# 합니다. 빈 테이블은 몇 번을 해제해도 해가 없습니다.

# %%
pool = BlockPool(num_blocks=6, block_size=4)
books = Books(pool)
a.block_table = pool.allocate(2)
books.release(a)
b.block_table = pool.allocate(2)
books.release(a)
c.block_table = pool.allocate(2)
print("released twice: b has", b.block_table, "and c has", c.block_table)

# %% [markdown] lang="en"
# ## Your answers
#
# **3. Is batch size 4 production batching?** No, and neither is 8 or 64. The number that a server has is
# its KV memory in tokens; how many requests that makes depends on how long they are, and is counted
# anew with every batch. Notebook 06 shows what batching by tokens looks like.
#
# **4. Does a larger batch always raise throughput?** With blocks the same memory holds several times the
# batch, and that raised throughput, though by less than the batch grew: there are fewer steps, and
# each takes longer. Memory ends the growth before `max_num_seqs` does: 64 were allowed, and the small
# pool took what it could hold. What a pool that is too small costs first is time in line.

# %% [markdown] lang="ko" of="2f719ffe"
# ## 여러분의 답
#
# **3. 배치 크기 4가 프로덕션 배칭인가?** 아닙니다. 8도 64도 아닙니다. 서버가 가진 숫자는 토큰으로 센 KV
# 메모리이고, 그것이 요청 몇 개인지는 요청의 길이에 달려 있으며 배치마다 새로 셉니다. 토큰 단위 배칭이 어떤
# 모습인지는 노트북 06에서 봅니다.
#
# **4. 배치가 커지면 처리량은 항상 늘어나는가?** 블록을 쓰면 같은 메모리가 몇 배의 배치를 담고 처리량도
# 늘지만, 배치가 커진 만큼은 아닙니다. 단계 수는 줄고 단계마다 더 오래 걸리기 때문입니다. 그리고
# `max_num_seqs`보다 메모리가 먼저 끝을 정합니다. 64개까지 허용했어도 작은 풀은 담을 수 있는 만큼만
# 받았습니다. 너무 작은 풀이 가장 먼저 치르는
# 값은 줄에서 기다리는 시간입니다.

# %% tags=["nbval-ignore-output"]
answer(
    3,
    requests_at_once_of_40_tokens=at_once[40],
    requests_at_once_of_200_tokens=at_once[200],
    requests_at_once_of_1000_tokens=at_once[1000],
)

# %% tags=["nbval-ignore-output"]
half = runs["blocks, half the memory"]
answer(
    4,
    batch_in_rows=runs["rows"].most_running,
    batch_in_blocks=runs["blocks"].most_running,
    batch_in_half_the_memory=half.most_running,
    tokens_per_s_rows=runs["rows"].tokens_per_s,
    tokens_per_s_blocks=runs["blocks"].tokens_per_s,
    tokens_per_s_half_the_memory=half.tokens_per_s,
    seconds_in_line_rows=runs["rows"].mean_queue_s,
    seconds_in_line_half_the_memory=half.mean_queue_s,
)

# %% [markdown] lang="en"
# ## The ladder so far
#
# Every rung up to this one on one small workload; the last one with labkit's parts, and with yours.

# %% [markdown] lang="ko" of="7d7ed077"
# ## 지금까지의 사다리
#
# 이 단(rung)까지의 모든 단을 작은 작업 하나로 잽니다. 마지막 단은 labkit의 코드로, 그리고 여러분의
# 코드로 돌립니다.

# %% tags=["nbval-ignore-output"]
from labkit.workbook.ladder import ladder

ladder("paged")

# %% [markdown] lang="en"
# ## In vLLM and Triton Inference Server
#
# - **The pool** is `BlockPool` in `vllm/v1/core/block_pool.py`. Its free queue is the order of eviction,
#   too, a linked list so that a block in the middle leaves in constant time (here an `OrderedDict`).
#   It keeps block 0 back as a *null block* that nobody owns, so padding in a block table harms nobody.
# - **`find_cached`** is `get_computed_blocks` in `vllm/v1/core/kv_cache_manager.py`. It, too, looks at no
#   more than `num_tokens - 1` tokens (since pull request 17999). The hash is SHA-256 by default since
#   v0.10.2, and the name of a block also takes in LoRA adapters, images and `cache_salt`.
# - **Slots and attention**: vLLM computes `slot_mapping` from block tables for each step
#   (`vllm/v1/worker/block_table.py`), and its kernels read through the table without gathering a copy.
#   That is notebook 05, in the Triton *language*.
# - vLLM manages several groups of blocks for models whose layers differ (sliding window, Mamba), and
#   can offload blocks to host memory. This one has a single group.
# - **Triton Inference Server** has no KV cache of its own; its backends have. The vLLM backend is vLLM.
#   With the TensorRT-LLM backend the blocks are those of TensorRT-LLM: a pool sized by
#   `kv_cache_free_gpu_mem_fraction`, reuse switched by `enable_kv_cache_reuse` in the model's
#   configuration, cached blocks found in a radix tree rather than by hashes, and evicted by priority
#   and age.
#
# Next: notebook 05 writes this attention as a GPU kernel; notebook 06 fills the pool anew in each step.

# %% [markdown] lang="ko" of="96245a0c"
# ## vLLM과 Triton Inference Server에서는
#
# - **풀**은 `vllm/v1/core/block_pool.py`의 `BlockPool`입니다. 빈 블록의 큐가 곧 축출 순서인 것도 같고, 가운데
#   블록도 상수 시간에 빠지도록 연결 리스트를 씁니다(여기서는 `OrderedDict`). 블록 0은 아무도 소유하지 않는
#   *null block*으로 빼 두어 블록 테이블의 패딩이 누구에게도 해를 주지 않습니다.
# - **`find_cached`**는 `vllm/v1/core/kv_cache_manager.py`의 `get_computed_blocks`입니다. 여기도 최대
#   `num_tokens - 1`개 토큰까지만 봅니다(pull request 17999부터). 해시는 v0.10.2부터 기본이 SHA-256이고,
#   블록의 이름에는 LoRA 어댑터, 이미지, `cache_salt`도 들어갑니다.
# - **슬롯과 어텐션**: vLLM은 단계마다 블록 테이블에서 `slot_mapping`을 계산하고
#   (`vllm/v1/worker/block_table.py`), 커널은 복사본을 모으지 않고 테이블을 따라 읽습니다. 노트북 05에서
#   Triton *언어*로 만드는 것이 이것입니다.
# - vLLM은 레이어마다 성격이 다른 모델(sliding window, Mamba)을 위해 블록 그룹을 여럿 관리하고, 블록을 호스트
#   메모리로 내보낼 수도 있습니다. 여기에는 그룹이 하나뿐입니다.
# - **Triton Inference Server**에는 자체 KV 캐시가 없고 백엔드에 있습니다. vLLM 백엔드는 vLLM 그대로입니다.
#   TensorRT-LLM 백엔드에서는 TensorRT-LLM의 블록을 씁니다. 풀의 크기는 `kv_cache_free_gpu_mem_fraction`이
#   정하고, 재사용은 모델 설정의 `enable_kv_cache_reuse`로 켭니다. 캐시된 블록은 해시가 아니라 radix tree에서
#   찾고 우선순위와 나이로 축출합니다.
#
# 다음: 노트북 05에서는 이 어텐션을 GPU 커널로 쓰고, 노트북 06에서는 단계마다 풀을 새로 채웁니다.

# %% tags=["nbval-ignore-output"]
progress()
