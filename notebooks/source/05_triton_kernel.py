# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] lang="en"
# # 05 · A kernel in the Triton language
#
# In July 2026 vLLM merged a repair of one word (pull request 47671). A kernel had read the number of
# a block from a block table, 32 bits wide, and multiplied it by the size of a block, there 276,480
# numbers. Above block 7,767 the product no longer fitted in 32 bits, turned negative, and the kernel
# read memory *before* the KV cache. In the author's run 285 of 1,319 requests failed. With a small
# pool, as in a test, it never happens. The repair: `.to(tl.int64)`.
#
# `tl` is the language of **Triton, the kernel language**: Python that is compiled for a GPU. (Triton
# Inference Server, in the last section, is another thing. In this notebook "Triton" alone is always
# the language.) Here you write the attention of notebook 04 in it, read through the block table,
# without a copy. In 05.2 you may well write that bug yourself.
#
# **You need no GPU and no Linux.** labkit has a *twin* of the language in NumPy: it runs the same
# text, and writes down every read and write of every program.
#
# **After this notebook you can**
#
# - say what a program, a grid, a pointer and a mask are, and read a kernel of vLLM;
# - compute a softmax that never holds all its scores;
# - walk a block table in a kernel, share loads among grouped query heads, split a long context;
# - count the bytes that a kernel moves, and place it under a roofline;
# - add numbers to the GPU's half of **2. Does splitting CPU and GPU work always raise GPU
#   utilization?**

# %% [markdown] lang="ko" of="86595d36"
# # 05 · Triton 언어로 쓰는 커널
#
# 2026년 7월 vLLM은 단어 하나짜리 수정을 병합했습니다(pull request 47671). 어떤 커널이 블록 테이블에서
# 32비트 블록 번호를 읽어 블록 크기(거기서는 숫자 276,480개)를 곱했는데, 7,767번 블록을 넘으면 곱이 32비트에
# 들어가지 않아 음수가 되었고, 커널은 KV 캐시보다 *앞*의 메모리를 읽었습니다. 작성자의 실행에서는 요청 1,319개 중 285개가
# 실패했습니다. 테스트처럼 풀이 작으면 절대 일어나지 않습니다. 수정은 `.to(tl.int64)`였습니다.
#
# `tl`은 **커널 언어 Triton**의 언어입니다. GPU용으로 컴파일되는 파이썬입니다. (마지막 절의 Triton Inference
# Server는 다른 것입니다. 이 노트북에서 그냥 "Triton"이라고 하면 언제나 언어를 뜻합니다.) 여기서는 노트북 04의
# 어텐션을 이 언어로 써서, 복사본 없이 블록 테이블을 따라 읽습니다. 05.2에서는 위의 버그를 직접 쓰기 쉽습니다.
#
# **GPU도 Linux도 필요 없습니다.** labkit에는 이 언어의 NumPy *쌍둥이*(twin)가 있습니다. 같은 코드를 실행하고,
# 모든 프로그램의 모든 읽기와 쓰기를 기록합니다.
#
# **이 노트북을 마치면**
#
# - 프로그램, 그리드, 포인터, 마스크가 무엇인지 말하고 vLLM의 커널을 읽을 수 있습니다.
# - 점수를 한꺼번에 담지 않는 소프트맥스를 계산할 수 있습니다.
# - 커널에서 블록 테이블을 따라 걷고, 그룹으로 묶인 쿼리 헤드끼리 읽기를 나누고, 긴 컨텍스트를 쪼갤 수 있습니다.
# - 커널이 옮기는 바이트를 세고 루프라인 아래에 놓을 수 있습니다.
# - **2. CPU와 GPU의 일을 나누면 항상 GPU 이용률이 올라가는가?** 에서 GPU 쪽 절반에 숫자를 더할 수 있습니다.

# %% header minutes=12

# %% [markdown] lang="en"
# ## If you start here
#
# Three minutes of what came before. In a decode step each sequence has one new token. Its queries
# (one a head) attend to the keys and values of all tokens before it. These lie in a **pool** of blocks,
# and a **block table** says in which:
#
# ```text
#   sequence      tokens 0..3   tokens 4..7   tokens 8,9        block_table [5, 2, 7]
#                     │             │            │
#   pool   0[    ] 1[    ] 2[4 5 6 7] 3[    ] 4[    ] 5[0 1 2 3] 6[    ] 7[8 9 ? ?]
# ```
#
# | name | shape | what it is |
# | --- | --- | --- |
# | `q` | `[T, heads, head_dim]` | queries of the new tokens |
# | `kv` | `[num_blocks, 2, kv_heads, block_size, head_dim]` | one layer of the pool: keys, then values |
# | `block_tables` | `[R, max_blocks]` | a row for each request |
#
# `GROUP = heads / kv_heads` query heads share a kv head (GQA). A `?` is a slot that nobody has written;
# it may hold NaN. Notebook 04 *gathered* a sequence's blocks into a copy and gave it to torch. `use`
# and `use_module` supply what you have not written yourself.
#
# ## Why a kernel
#
# Decode waits for memory (notebook 03). So bytes are what counts, and a gather moves them three times:
# read from the pool, written to the copy, read from the copy. Plain PyTorch can't do otherwise: each
# of its operations reads tensors and writes a tensor. A kernel is an operation that we write: it reads
# a block where it lies and is done with it. (PyTorch's FlexAttention *compiles* an attention that reads
# through a block table, to a kernel too.)

# %% [markdown] lang="ko" of="78a88e4a"
# ## 여기서 시작한다면
#
# 앞 내용을 3분 만에 정리합니다. 디코드 단계에서 시퀀스마다 새 토큰이 하나 있습니다. 그 쿼리(헤드마다 하나)가
# 앞선 모든 토큰의 키와 값을 봅니다. 키와 값은 블록의 **풀**에 있고, 어느 블록인지는 **블록 테이블**이
# 말합니다.
#
# ```text
#   sequence      tokens 0..3   tokens 4..7   tokens 8,9        block_table [5, 2, 7]
#                     │             │            │
#   pool   0[    ] 1[    ] 2[4 5 6 7] 3[    ] 4[    ] 5[0 1 2 3] 6[    ] 7[8 9 ? ?]
# ```
#
# | 이름 | 모양 | 뜻 |
# | --- | --- | --- |
# | `q` | `[T, heads, head_dim]` | 새 토큰들의 쿼리 |
# | `kv` | `[num_blocks, 2, kv_heads, block_size, head_dim]` | 풀의 레이어 하나: 키, 그다음 값 |
# | `block_tables` | `[R, max_blocks]` | 요청마다 한 행 |
#
# `GROUP = heads / kv_heads`개의 쿼리 헤드가 kv 헤드 하나를 공유합니다(GQA). `?`는 아무도 쓰지 않은
# 슬롯이고 NaN이 들어 있을 수 있습니다. 노트북 04에서는 시퀀스의 블록을 복사본으로 *모아*(gather) torch에
# 넘겼습니다. 직접 쓰지 않은 것은 `use`와 `use_module`이 채워 줍니다.
#
# ## 왜 커널인가
#
# 디코드는 메모리를 기다립니다(노트북 03). 그러니 중요한 것은 바이트이고, gather는 이를 세 번 옮깁니다. 풀에서
# 읽고, 복사본에 쓰고, 복사본에서 읽습니다. 그냥 쓰는 PyTorch는 연산마다 텐서를 읽고 텐서를 쓰므로 달리 방법이
# 없습니다. 커널은 우리가 직접 쓰는 연산입니다. 블록을 있는 자리에서 읽고 그것으로 끝냅니다. (PyTorch의
# FlexAttention은 블록 테이블을 따라 읽는 어텐션을 *컴파일*합니다. 그 결과도 커널입니다.)

# %% [markdown] lang="en"
# ## A program and its grid
#
# A kernel is written for one **program**; the GPU runs many at once, each with its own
# `tl.program_id`. How many, is the **grid**. A program works on whole small arrays: `tl.arange` makes
# one. A **pointer** plus an array of offsets is an array of pointers, and `tl.load` reads them all. A
# **mask** says which; the others are not touched. Numbers in capitals are known when it is compiled
# (`tl.constexpr`). Those that are the size of an array (ROWS, TILE, DIM, SPLITS) are powers of two.
#
# On the twin a trace tells what each program did:

# %% [markdown] lang="ko" of="a1c99b9a"
# ## 프로그램과 그리드
#
# 커널은 **프로그램** 하나의 입장에서 씁니다. GPU는 이를 여러 개 동시에 실행하고, 각자 자기 `tl.program_id`를
# 갖습니다. 몇 개인지가 **그리드**입니다. 프로그램은 작은 배열을 통째로 다루며 `tl.arange`가 배열을 만듭니다.
# **포인터**에 오프셋 배열을 더하면 포인터의 배열이 되고 `tl.load`가 모두 읽습니다. **마스크**는 그중 어느 것을
# 읽을지 말하고, 나머지는 건드리지 않습니다. 대문자로 쓴 수는 컴파일할 때 정해집니다(`tl.constexpr`). 그중
# 배열의 크기인 것(ROWS, TILE, DIM, SPLITS)은 2의 거듭제곱입니다.
#
# 쌍둥이에서는 각 프로그램이 한 일을 기록(trace)이 말해 줍니다.

# %%
import numpy as np

from labkit.kernels.gpu import twin
from labkit.kernels.gpu import twin as tl


@twin.jit
def double(x, out, n, SIZE: tl.constexpr):
    places = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    there = places < n
    tl.store(out + places, 2 * tl.load(x + places, mask=there), mask=there)


x, out = np.arange(10, dtype=np.int64), np.zeros(10, np.int64)
trace = double[3,](x, out, 10, SIZE=4)
for read in trace.of("x"):
    print("program", read.program[0], "reads x at", read.offsets.tolist())
print("out:", out.tolist(), " bytes read:", trace.bytes_moved("x"))
try:
    double[3,](x, out, 12, SIZE=4)  # told that there are 12
except twin.OutOfBounds as error:
    print("out of bounds:", error)

# %% [markdown] lang="en"
# A GPU wouldn't have told: it reads whatever lies there, or stops the whole process, some kernels
# later.
#
# ## The softmax, a tile at a time
#
# Attention is a weighted mean: weights `exp(score)`, divided by their total. To be safe from overflow
# one takes the largest score off first, and for that, it seems, one must see all scores before the
# first value is used. A sequence of 100,000 tokens doesn't fit in a program's fast memory.
#
# The way out (Milakov and Gimelshein 2018; FlashAttention made attention of it): keep three numbers
# and repair them. `most`, the largest score *so far*; `total`, the sum of weights relative to it;
# `acc`, the sum of values with these weights. When a larger score comes, both sums shrink by
# `exp(old - new)`. Scores come as logarithms to base 2 here, for `exp2` is what a GPU computes
# fast.

# %% [markdown] lang="ko" of="0ab466e7"
# GPU라면 알려 주지 않습니다. 거기 있는 것을 그냥 읽거나, 커널 몇 개가 지난 뒤 프로세스 전체가 멈춥니다.
#
# ## 타일 하나씩 계산하는 소프트맥스
#
# 어텐션은 가중 평균입니다. 가중치 `exp(score)`를 그 합으로 나눕니다. 오버플로를 피하려면 먼저 최댓값을 빼야
# 하고, 그러려면 첫 값을 쓰기 전에 모든 점수를 봐야 할 것 같습니다. 하지만 토큰 100,000개의 시퀀스는 프로그램의
# 빠른 메모리에 들어가지 않습니다.
#
# 해결책(Milakov와 Gimelshein 2018, FlashAttention이 어텐션에 적용)은 숫자 세 가지를 들고 고쳐 나가는 것입니다.
# `most`는 *지금까지의* 최댓값, `total`은 그것을 기준으로 한 가중치의 합, `acc`는 그 가중치를 곱한 값의 합입니다.
# 더 큰 점수가 오면 두 합이 `exp(옛것 - 새것)`만큼 줄어듭니다. 여기서 점수는 밑이 2인 로그로 들어옵니다. GPU가
# 빠르게 계산하는 것이 `exp2`이기 때문입니다.

# %% exercise="05.1"

# %% [markdown] lang="en"
# Your function over 64 scores, 8 at a time, beside the softmax over all at once. `use_module` gives the
# whole module of kernels with your parts in it; `twin.in_numpy` has it run on the twin.

# %% [markdown] lang="ko" of="29974cfe"
# 여러분의 함수로 점수 64개를 8개씩 처리하고, 한꺼번에 계산한 소프트맥스와 비교합니다. `use_module`은 여러분의
# 코드가 들어간 커널 모듈 전체를 주고, `twin.in_numpy`는 그 모듈을 쌍둥이 위에서 돌게 합니다.

# %% tags=["nbval-ignore-output"]
paged = twin.in_numpy(use_module("05.1"))

# %%
random = np.random.default_rng(7)
scores, values = 2 * random.standard_normal(64), random.standard_normal(64)
state = [twin.tensor(np.float32([-1e30])), twin.tensor(np.float32([0])), twin.tensor([[0.0]])]
history = []
for first in range(0, 64, 8):
    tile = slice(first, first + 8)
    state = paged.online_softmax(
        twin.tensor(scores[None, tile]), twin.tensor(values[tile, None]), *state
    )
    history.append([x.item() for x in state])
weights = np.exp2(scores - scores.max())
at_once = float(weights @ values / weights.sum())
print("the same as all at once:", abs(history[-1][2] / history[-1][1] - at_once) < 1e-6)

# %% tags=["nbval-ignore-output"]
from labkit.workbook.figures.kernels import online_figure

largest, totals, sums = zip(*history)
online_figure(largest, totals, [s / t for s, t in zip(sums, totals)], at_once)

# %% [markdown] lang="en"
# ## One tile, through the table
#
# Now the memory. A layer of the pool is one long row of numbers. Think of it as *lines* of `head_dim`
# numbers; `load_lines` reads some of them:
#
# ```text
#   block b:   keys of head 0   keys of head 1  ...   values of head 0   values of head 1  ...
#              block_size lines                       KV_HEADS * block_size lines later
# ```

# %% [markdown] lang="ko" of="c82d276b"
# ## 테이블을 거쳐 타일 하나
#
# 이제 메모리입니다. 풀의 레이어 하나는 숫자가 길게 늘어선 한 줄입니다. 이를 숫자 `head_dim`개짜리 *줄*(line)들로
# 보세요. `load_lines`가 그중 몇 줄을 읽습니다.
#
# ```text
#   block b:   keys of head 0   keys of head 1  ...   values of head 0   values of head 1  ...
#              block_size lines                       KV_HEADS * block_size lines later
# ```

# %% show="labkit.kernels.gpu.paged:load_lines"

# %% exercise="05.2"

# %% [markdown] lang="en"
# At work on a pool whose numbers name their place: 502 is block 5, slot 2, and a value is half more.
# The sequence has six tokens in blocks 5 and 2. Behind them lies NaN.

# %% [markdown] lang="ko" of="0775ed54"
# 숫자가 자기 자리를 말하는 풀에서 돌려 봅니다. 502는 블록 5의 슬롯 2이고, 값은 거기에 0.5를 더한 것입니다.
# 시퀀스에는 토큰 여섯 개가 블록 5와 2에 있습니다. 그 뒤에는 NaN이 있습니다.

# %% tags=["nbval-ignore-output"]
paged = twin.in_numpy(use_module("05.2"))

# %%
from labkit.workbook.fakes_kernels import named_pool, read_tile

pool = named_pool(num_blocks=6, block_size=4, written={2: 2})
seen = read_tile(paged, pool, tables=[[5, 2]], places=range(8), there=[True] * 6 + [False] * 2)
print("keys:  ", [row[0] for row in seen["keys"]])
print("values:", [row[0] for row in seen["values"]])
print("slots read of each block:", seen["reads"]["0"], " bytes:", seen["bytes read"])

# %% [markdown] lang="en"
# ## Grouped queries
#
# Which programs shall there be? One for each query head is the obvious choice, and vLLM's first
# kernel had it. But the query heads of a group read the *same* keys: GROUP programs would each fetch
# them. So: one program for each **kv head**, with all query heads of its group as *rows*. For a
# product of matrices (`tl.dot`) that costs nothing: tensor cores work on 16 rows at a time, and fewer
# are filled up.
#
# The same rows serve prefill: there a program takes several tokens, and a row is a head of one of
# them.

# %% [markdown] lang="ko" of="aab3d215"
# ## 그룹으로 묶인 쿼리
#
# 프로그램은 무엇마다 하나씩 두어야 할까요? 쿼리 헤드마다 하나가 자연스럽고 vLLM의 첫 커널도 그랬습니다. 하지만
# 한 그룹의 쿼리 헤드들은 *같은* 키를 읽으므로 GROUP개의 프로그램이 저마다 그것을 가져옵니다. 그래서 **kv
# 헤드**마다 프로그램 하나를 두고, 그 그룹의 쿼리 헤드 모두를 *행*으로 삼습니다. 행렬곱(`tl.dot`)의 비용은 늘지 않습니다.
# 텐서 코어는 한 번에 16행을 계산하고, 모자라는 행은 채웁니다.
#
# 같은 행을 프리필에도 씁니다. 거기서는 프로그램 하나가 토큰 여럿을 맡고, 행 하나가 그중 한 토큰의 헤드
# 하나입니다.

# %% exercise="05.3"

# %% tags=["nbval-ignore-output"]
paged = twin.in_numpy(use_module("05.3"))

# %%
# SmolLM2-135M has 9 query heads and 3 kv heads
for kv_head in range(3):
    tokens, lines, real = map(np.asarray, paged.query_rows(0, 1, kv_head, 3, 3, 4))
    print("decode,  kv head", kv_head, "→ query heads", lines[real].tolist())
tokens, lines, real = map(np.asarray, paged.query_rows(0, 5, 1, 3, 3, 16))
each = [f"t{line // 9}h{line % 9}" for line in lines[real]]
print("prefill, kv head 1 →", *each, f"and {int((~real).sum())} that fills up")

# %% [markdown] lang="en"
# ## The walk
#
# Everything is there: a program has its queries, walks the tiles of its sequence, loads each, computes
# scores (`query · key * scale`, times log2(e) for base 2), hides what a row may not see, and hands the
# tile to `online_softmax`. Begin with `LOWEST` (-1e30), not with -inf: a row that sees nothing in its
# first tile would compute -inf minus -inf.

# %% [markdown] lang="ko" of="86c5a7f3"
# ## 걷기
#
# 준비가 끝났습니다. 프로그램은 자기 쿼리를 가지고 시퀀스의 타일을 차례로 걷습니다. 타일을 읽고, 점수를
# 계산하고(`query · key * scale`, 밑 2를 위해 log2(e)를 곱함), 행이 보면 안 되는 것을 가리고, 타일을
# `online_softmax`에 넘깁니다. -inf가 아니라 `LOWEST`(-1e30)에서 시작하세요. 첫 타일에서 아무것도 보지 못하는 행은
# -inf - -inf를 계산하게 됩니다.

# %% exercise="05.4"

# %% [markdown] lang="en"
# The kernel around it finds the program's request and writes the result. `SPLITS` is for the next
# section.

# %% [markdown] lang="ko" of="e3323b18"
# 이를 감싸는 커널은 프로그램이 맡을 요청을 찾고 결과를 씁니다. `SPLITS`는 다음 절에서 씁니다.

# %% show="labkit.kernels.gpu.paged:decode_kernel"

# %% [markdown] lang="en"
# Three sequences in shuffled blocks, NaN wherever nobody wrote. Your kernel, beside the softmax in
# float64 and notebook 04's `PagedAttention`:

# %% [markdown] lang="ko" of="7b09cfc6"
# 섞인 블록에 시퀀스 셋이 있고, 아무도 쓰지 않은 곳은 모두 NaN입니다. 여러분의 커널을 float64 소프트맥스와
# 노트북 04의 `PagedAttention`에 비교합니다.

# %% tags=["nbval-ignore-output"]
paged = twin.in_numpy(use_module("05.4"))

# %%
from labkit.measure.experiments import kernels

case = kernels.sequences([70, 130, 33], heads=8, kv_heads=2, head_dim=16, block_size=16)
done, wanted = kernels.decode(paged, case), kernels.definition(case)
print("programs:", len({access.program for access in done.traces[0].of("kv")}))
print("as the softmax in float64:", bool(abs(done.out - wanted).max() < 1e-5))
print("as notebook 04's attention:", bool(abs(done.out - kernels.by_reference(case)).max() < 1e-5))
kv_bytes = done.moved("kv")
print(f"keys and values read: {kv_bytes:,} bytes; there are {sum(x.nbytes for x in case.own):,}")

# %% [markdown] lang="en"
# Every key and value once, and no byte more. And a whole model over your kernel, prompts included:
# `tiny`, beside `transformers`, which knows neither blocks nor tiles.

# %% [markdown] lang="ko" of="d0beee34"
# 모든 키와 값을 한 번씩 읽고 한 바이트도 더 읽지 않습니다. 이번에는 프롬프트까지 포함해 모델 전체를 여러분의
# 커널 위에서 돌립니다. `tiny`를, 블록도 타일도 모르는 `transformers`와 비교합니다.

# %%
from labkit.engine.paged import PagedEngine
from labkit.engine.request import Request
from labkit.measure.generation import generate
from labkit.model import best_device, load, loading

device = best_device()
tiny = load("tiny", device=device)
decoder = loading.load_decoder("tiny", device=device, attention="torch")
decoder.model.attention = kernels.attention_by(paged)
engine = PagedEngine(decoder.model, (), num_blocks=32, block_size=4)
requests = [Request(word, tiny.tokenizer.encode(word), max_tokens=5) for word in ("a", "Triton")]
for request in requests:
    engine.add(request)
while engine.has_unfinished():
    engine.step()
for request in requests:
    alone = generate(tiny.model, request.prompt_token_ids, 5, use_cache=True)
    print(f"{request.output_token_ids}  as transformers: {request.output_token_ids == alone}")

# %% [markdown] lang="en"
# ## The split
#
# One sequence of 100,000 tokens on a model with 8 kv heads: 8 programs. An H100 has 132
# multiprocessors, the cores on which programs run. So 124 of them have nothing to do, and eight walk
# 100,000 tokens each. So cut the *context*
# in parts, a program for each (Flash-Decoding, Dao et al. 2023). A part ends as `walk` left it:
# `most`, `total`, `acc`, not divided. A second small kernel merges them, and that is `online_softmax`
# once more: bring the parts to one largest score, add, divide once.

# %% [markdown] lang="ko" of="6d0a3bed"
# ## 쪼개기
#
# kv 헤드가 8개인 모델에 토큰 100,000개짜리 시퀀스 하나가 오면 프로그램은 8개입니다. H100에는
# 프로그램이 도는 코어인 멀티프로세서(multiprocessor)가 132개 있으므로 124개는 할 일이 없고, 8개가 토큰 100,000개씩 걷습니다. 그래서
# *컨텍스트*를 부분으로 잘라 부분마다 프로그램을 둡니다(Flash-Decoding, Dao et al. 2023). 각 부분은 `walk`가
# 남긴 그대로 `most`, `total`, 나누지 않은 `acc`로 끝납니다. 작은 두 번째 커널이 이를 합칩니다. 다시
# `online_softmax`와 같은 일입니다. 부분들을 하나의 최댓값 기준으로 옮기고, 더하고, 한 번 나눕니다.

# %% exercise="05.5"

# %% [markdown] lang="en"
# The same three sequences in four parts. Which program reads which block:

# %% [markdown] lang="ko" of="b20e4ba5"
# 같은 시퀀스 셋을 네 부분으로 나눕니다. 어느 프로그램이 어느 블록을 읽는지 봅니다.

# %% tags=["nbval-ignore-output"]
paged = twin.in_numpy(use_module("05.5"))

# %%
split = kernels.decode(paged, case, splits=4)
print("as the softmax in float64:", bool(abs(split.out - wanted).max() < 1e-5))
print("programs:", len(split.traces[0].of("q")), " merging:", len(split.traces[1].of("parts")))
print(f"keys and values read: {split.moved('kv'):,} bytes, as before: {split.moved('kv') == kv_bytes}")

# %% tags=["nbval-ignore-output"]
from labkit.workbook.figures.kernels import reads_figure

two = kernels.decode(paged, case, splits=2)
reads_figure(
    kernels.reads(two.traces[0], case), len(case.kv), 16, "Which program reads which block (2 parts)"
)

# %% [markdown] lang="en"
# Two programs for each block, one for each kv head, and no program reads a block of another request.
# The numbers of a row add up to the tokens of its part.
#
# ## In Triton itself
#
# The twin runs the same text as Triton, and counts; it is no compiler. Where Triton is installed (on
# Linux, it comes with torch) the next cell gives your module to it, in a process of its own. With a
# GPU it is compiled and run there, else Triton's own interpreter runs it. And it is compiled for two
# kinds of GPU, A100 (8.0) and H100 (9.0), whether there is one or not: machine code says what a
# program needs. A program is run by 128 threads here, four *warps* of 32. *Registers* are a thread's own
# numbers, 255 at most; what doesn't fit is *spilled* to memory, which is slow; *shared* is the fast
# memory of a program.

# %% [markdown] lang="ko" of="d75a9476"
# 블록마다 프로그램 둘, 곧 kv 헤드마다 하나씩이고, 어떤 프로그램도 다른 요청의 블록을 읽지 않습니다. 한
# 행의 숫자를 더하면 그 부분의 토큰 수가 됩니다.
#
# ## 진짜 Triton에서
#
# 쌍둥이는 Triton과 같은 코드를 실행하고 세지만 컴파일러는 아닙니다. Triton이 설치되어 있으면(Linux에서는
# torch와 함께 설치됩니다) 다음 셀이 여러분의 모듈을 별도 프로세스에서 Triton에 넘깁니다. GPU가 있으면
# 컴파일해 거기서 실행하고, 없으면 Triton의 인터프리터가 실행합니다. 그리고 GPU가 있든 없든 두 종류의 GPU,
# A100(8.0)과 H100(9.0)용으로 컴파일합니다. 기계어가 프로그램에 필요한 것을 말해 줍니다. 여기서 프로그램 하나는 스레드
# 128개, 곧 32개씩인 *워프*(warp) 넷이 실행합니다. *레지스터*는 스레드 자신의 숫자로 최대 255개이고, 다 들어가지
# 않으면 느린 메모리로 *흘러넘칩니다*(spill). *shared*는 프로그램의 빠른 메모리입니다.

# %% tags=["nbval-ignore-output"]
from labkit.workbook import my_kernels

if my_kernels.is_installed():
    try:
        ran = my_kernels.errors(paged)
        for name, error in ran["errors"].items():
            print(f"{ran['how']}: {name:25} largest error against float64: {error:.1e}")
        print(f"\n{'kernel':14} {'GPU':>4} {'registers':>10} {'spilled':>9} {'shared':>11}")
        for need in my_kernels.needs(paged, ["decode", "decode split", "merge"]):
            print(
                f"{need['kernel']:14} {need['capability'] / 10:4} {need['registers']:6} of 255"
                f" {need['spilled']:3} bytes {need['shared']:5} bytes"
            )
    except RuntimeError as error:  # right on the twin, and refused by the compiler
        print(error)
else:
    print("Triton, the kernel language, is there for Linux only; here the twin has run it all.")

# %% [markdown] lang="en"
# Such a table sees what no test of numbers sees. Add the values up by hand in 05.1,
# `tl.sum(weights[:, :, None] * values[None, :, :], axis=1)` in place of `tl.dot`: as right on the twin
# and in the interpreter, your check passes, and compiled for an A100 it spills thousands of bytes a
# thread (with Triton 3). Its registers may even look few then: what was spilled isn't counted there.
#
# ## Experiment A: bytes moved
#
# **Question 2: does splitting CPU and GPU work always raise GPU utilization?** The study group's
# answer: *no; tokenizer delay, small batches, KV shortage, transfers, the scheduler or memory bandwidth
# may hold it back.* This experiment is about the last of these: what a GPU does with its bandwidth.
#
# Four ways to do one decode step, for groups of four query heads (as Llama 3 8B has): gather a copy,
# then attend; a program for each query head; a program for each kv head; the same in four parts.
#
# **Predict.** How many times the least possible does *a program a query head* move?

# %% [markdown] lang="ko" of="704a48df"
# 이런 표는 숫자를 보는 테스트가 못 보는 것을 봅니다. 05.1에서 `tl.dot` 대신
# `tl.sum(weights[:, :, None] * values[None, :, :], axis=1)`로 직접 더해 보세요. 쌍둥이에서도 인터프리터에서도
# 맞고 검사도 통과하지만, A100용으로 컴파일하면 스레드마다 수천 바이트가 흘러넘칩니다(Triton 3 기준). 그때 레지스터
# 수는 오히려 적어 보일 수 있습니다. 흘러넘친 것은 거기에 들어가지 않기 때문입니다.
#
# ## 실험 A: 옮긴 바이트
#
# **질문 2: CPU와 GPU의 일을 나누면 항상 GPU 이용률이 올라가는가?** 스터디 그룹의 답은 *아니다. 토크나이저
# 지연, 작은 배치, KV 부족, 전송, 스케줄러, 메모리 대역폭이 붙잡을 수 있다* 입니다. 이 실험은 그 마지막, 곧 GPU가
# 대역폭으로 무엇을 하는지에 관한 것입니다.
#
# 쿼리 헤드 네 개씩의 그룹(Llama 3 8B와 같음)에서 디코드 한 단계를 네 방식으로 합니다. 복사본을 모은 뒤
# 어텐션, 쿼리 헤드마다 프로그램 하나, kv 헤드마다 프로그램 하나, 그리고 그것을 네 부분으로 나눈 것입니다.
#
# **예측.** *쿼리 헤드마다 프로그램 하나*는 가능한 최소의 몇 배를 옮길까요?

# %% tags=["nbval-ignore-output"]
predict("05.bytes", low=1, high=16, unit="times the least", step=0.1)

# %% [markdown] lang="en"
# **Run.** On the twin, with your parts; every read and write is counted.

# %% [markdown] lang="ko" of="8223029d"
# **실행.** 쌍둥이 위에서 여러분의 코드로 돌리고 모든 읽기와 쓰기를 셉니다.

# %%
case = kernels.sequences([300, 700, 120], heads=8, kv_heads=2, head_dim=64)
ways = {way.name: way for way in kernels.ways(paged, case)}
for name, way in ways.items():
    print(f"{name:24} {way.factor:5.2f} times the least; right: {way.error < 1e-5}")

# %% tags=["nbval-ignore-output"]
from labkit.workbook.figures.kernels import ways_figure

ways_figure([*ways.values()])

# %% tags=["nbval-ignore-output"]
compare("05.bytes", ways["a program a query head"].factor, "times the least")

# %% [markdown] lang="en"
# A program a query head moves keys and values GROUP times; a gather three times, whatever the group.
# (On a GPU some of the repeated reads are caught by its L2 cache, as long as it holds what the
# others read; the twin counts what is asked for.) Your kernel moves the least there is. Splitting
# adds a little: parts are written and read in float32. It shrinks as the context grows, and what it
# buys is next. This *supports* the group's answer: where memory holds a step back, the bytes of the
# kernel decide, whoever does the CPU's work.
#
# ## Experiment B: one long sequence
#
# **Predict.** Llama 3 8B, one sequence of 32,768 tokens on an H100. How many times sooner is its
# attention done with the split than without?

# %% [markdown] lang="ko" of="a3e0e0d1"
# 쿼리 헤드마다 프로그램을 두면 키와 값을 GROUP번 옮기고, gather는 그룹과 상관없이 세 번 옮깁니다. (GPU에서는 다른
# 프로그램이 읽은 것을 L2 캐시가 담고 있는 동안 반복된 읽기의 일부를 막아 줍니다. 쌍둥이는 요청한 것을 셉니다.)
# 여러분의 커널은 가능한 최소만 옮깁니다. 쪼개기는 조금 더합니다. 부분들을 float32로 쓰고 읽기 때문입니다. 이
# 몫은 컨텍스트가 길수록 작아집니다. 그 대가로 얻는 것이 다음 실험입니다.
# 그룹의 답을 *뒷받침*하는 결과입니다. 메모리에 묶인 단계에서는 CPU의 일을 누가 하든 커널이 옮기는 바이트가
# 결정합니다.
#
# ## 실험 B: 긴 시퀀스 하나
#
# **예측.** Llama 3 8B, H100에서 32,768토큰짜리 시퀀스 하나. 쪼개면 어텐션이 몇 배 빨리 끝날까요?

# %% tags=["nbval-ignore-output"]
predict("05.split", low=1, high=64, unit="times sooner", step=1)

# %% [markdown] lang="en"
# **Run.** Modelled, not measured: bytes divided by bandwidth (3.35 TB/s), where each of the 132
# multiprocessors (NVIDIA's H100 SXM5) draws an equal share, and one without a program draws none. Alone
# one can draw several times its share of 25 GB/s, so this flatters the split: take the result for an
# upper bound. Launching kernels is left out.
# How many parts there are is what labkit chooses (`splits_for`), from shapes alone.

# %% [markdown] lang="ko" of="ea006c7b"
# **실행.** 잰 것이 아니라 계산한 것(modelled)입니다. 바이트를 대역폭(3.35TB/s)으로 나누되, 멀티프로세서
# 132개(NVIDIA H100 SXM5)가 대역폭을 똑같이 나눠 쓰고 프로그램이 없는 것은 쓰지 않는다고 봅니다. 실제로는 혼자일 때
# 자기 몫인 25GB/s의 몇 배를 쓸 수 있으므로 이 계산은 쪼개기에 유리합니다. 결과는 상한으로 보세요. 커널을 띄우는
# 시간은 뺐습니다. 몇 부분으로 나눌지는
# labkit이 모양만 보고 정하는 그대로입니다(`splits_for`).

# %%
from labkit.kernels.gpu import launch
from labkit.measure.simulate.cards import card_named

h100, processors, heads_of_llama = card_named("H100"), 132, (8, 4, 128)
tile = launch.decode_sizes(2, 128, 4).tile
whole, split = [], []
for context in (1024 * 2**i for i in range(8)):
    parts = launch.splits_for(8, -(-context // tile), processors)
    whole.append(kernels.split_model(context, 1, h100.bandwidth, processors, *heads_of_llama))
    split.append(kernels.split_model(context, parts, h100.bandwidth, processors, *heads_of_llama))
for one, many in zip(whole[1::2], split[1::2], strict=True):
    print(
        f"{one.context:7,} tokens: {one.programs} programs, {1e6 * one.seconds:5.0f} µs;"
        f" in {many.splits:2} parts {many.programs:3} programs, {1e6 * many.seconds:4.0f} µs"
    )

# %% tags=["nbval-ignore-output"]
from labkit.workbook.figures.kernels import split_figure

split_figure(whole, split, processors)

# %% tags=["nbval-ignore-output"]
sooner = whole[5].seconds / split[5].seconds
compare("05.split", sooner, "times sooner", modelled=True)

# %% [markdown] lang="en"
# This *sharpens* question 2. A monitor would have shown 100% in both cases: NVIDIA's library (NVML,
# which `nvidia-smi` reads) defines GPU utilization as the percent of time in which *one or more
# kernels* was executing. Eight programs on 132 multiprocessors are one kernel. A GPU that is "busy"
# may use a sixteenth of its bandwidth, and no division of work between CPU and GPU changes that.
# What does: more sequences at once, or the split.
#
# ## Under the roof
#
# Where does your kernel lie? The attention of one decode step of Llama 3 8B, 16 sequences of 4,096
# tokens, 32 layers. Arithmetic is the same for all ways; bytes are not, so a way that moves more lies
# further left. With a GPU your kernel is timed; without, the roof is an H100's by its data sheet and the
# marks are modelled by the bytes that were counted.

# %% [markdown] lang="ko" of="cddbf45b"
# 이것은 질문 2의 답을 *더 정확하게* 합니다. 모니터는 두 경우 모두 100%를 보였을 것입니다. NVIDIA의 라이브러리(`nvidia-smi`가 읽는
# NVML)는 GPU 이용률을 *커널이 하나라도* 실행되고 있던 시간의 비율로 정의합니다. 멀티프로세서 132개 위의 프로그램 8개도
# 커널 하나입니다. "바쁜" GPU가 대역폭의 16분의 1만 쓰고 있을 수 있고, CPU와 GPU의 일을 어떻게 나누어도
# 그대로입니다. 바꾸는 것은 동시에 처리하는 시퀀스를 늘리거나 쪼개는 것입니다.
#
# ## 루프라인 아래
#
# 여러분의 커널은 어디에 있을까요? Llama 3 8B의 디코드 한 단계의 어텐션, 4,096토큰짜리 시퀀스 16개, 32층입니다.
# 산술은 어느 방식이나 같고 바이트는 다르므로, 더 많이 옮기는 방식은 더 왼쪽에 놓입니다. GPU가 있으면 여러분의
# 커널을 재고, 없으면 지붕은 사양서의 H100이고 점들은 센 바이트로 계산한(modelled) 것입니다.

# %% tags=["nbval-ignore-output"]
import torch

from labkit.measure.roofline import Machine, measure_machine
from labkit.workbook.figures.kernels import decode_roofline

layers, shape = 32, (16, 4096, 32, 8, 128)  # requests, context, heads, kv heads, head_dim
least = layers * 16 * 4096 * 2 * 8 * 128 * 2  # bytes in bfloat16
flops = layers * 4 * 16 * 4096 * 32 * 128  # scores, then the weighted sum
moved = {name: way.factor * least for name, way in ways.items() if "parts" not in name}
if torch.cuda.is_available() and my_kernels.is_installed():
    machine, title = measure_machine("cuda"), "Attention of a decode step (measured, float32 roof)"
    once = my_kernels.seconds_on_gpu(use_module("05.5"), shape)
    seconds = {name: layers * second for name, second in once.items()}
else:
    machine, title = Machine(h100.flops, h100.bandwidth), "Decode attention, H100 (modelled)"
    seconds = {}
decode_roofline(machine, flops, moved, title, seconds)

# %% [markdown] lang="en"
# All ways lie under the slope, and for decode that is where they stay: four FLOP for each byte at
# the very best (in bfloat16 that is GROUP), while the roofs of an H100 meet near 300. So the only
# way up is to the right, along the slope: fewer bytes. A kernel that moves the least is as fast as
# its memory allows; what is left then is a smaller cache (fewer kv heads, 8-bit keys and values).

# %% [markdown] lang="ko" of="807eeeea"
# 모든 방식이 비탈 아래에 있고, 디코드에서는 계속 거기에 있습니다. 가장 좋아도 바이트당 4FLOP(bfloat16이면 곧
# GROUP)인데, H100의 두 지붕이 만나는 점은 300 근처입니다. 그러니 위로 가는 길은 비탈을 따라 오른쪽, 바이트를 줄이는 것뿐입니다. 최소만 옮기는
# 커널은 메모리가 허락하는 만큼 빠릅니다. 그다음에 남은 것은 캐시를 줄이는 일입니다(더 적은 kv 헤드, 8비트 키와
# 값).

# %% [markdown] lang="en"
# ## What breaks
#
# **1. Thirty-two bits.** The bug of the opening. A block of Llama 3 8B's layer has 2 · 8 · 16 · 128 =
# 32,768 numbers. Small block numbers are fine; then the offset is negative; and further on it comes
# round to a block that exists, and the answer is somebody else's, without an error.

# %% [markdown] lang="ko" of="6a480d45"
# ## 무엇이 깨지는가
#
# **1. 32비트.** 맨 앞의 버그입니다. Llama 3 8B 한 층의 블록에는 숫자가 2 · 8 · 16 · 128 = 32,768개 있습니다.
# 블록 번호가 작으면 괜찮다가, 오프셋이 음수가 되고, 더 가면 한 바퀴 돌아 실제로 있는 블록에 닿습니다. 오류 없이
# 남의 답이 나옵니다.

# %%
for block in (1_000, 65_535, 65_536, 131_073):
    narrow = int((np.array([block], np.int32) * 32_768)[0])
    lands = f"block {narrow // 32_768:,}" if narrow >= 0 else "before the pool"
    print(f"block {block:7,}: offset in 32 bits {narrow:14,} → {lands}")

# %% [markdown] lang="en"
# Mended where the number is read: one `.to(tl.int64)`, and everything computed from it is 64 bits wide.
#
# **2. Minus infinity minus minus infinity.** "-inf" for "nothing seen yet" is the obvious choice, until
# a part of a split has nothing to see. flashinfer had to guard three such places in one change (pull
# request 4401), an empty part of a split among them. A finite number must lie below any score: its
# earlier one, -50,000, did not. Here the second of two parts is empty:

# %% [markdown] lang="ko" of="392c16de"
# 번호를 읽는 자리에서 고칩니다. `.to(tl.int64)` 하나면 거기서 계산되는 모든 것이 64비트가 됩니다.
#
# **2. 마이너스 무한대 빼기 마이너스 무한대.** "아직 본 것이 없음"에 -inf를 쓰는 것이 자연스럽지만, 쪼갠 부분
# 하나가 볼 것이 없으면 깨집니다. flashinfer는 변경 하나에서 그런 곳 셋을 막아야 했고(pull request 4401), 그중
# 하나가 쪼갠 컨텍스트의 빈 부분이었습니다. 유한한 값은 어떤 점수보다도 작아야 합니다. flashinfer가 전에 쓰던
# -50,000은 그렇지 않았습니다. 여기서는 두 부분 중 둘째가 비어 있습니다.

# %%
for name, lowest in (("-inf", -np.inf), ("LOWEST", -1e30)):
    nothing = twin.tensor(np.full((1, 4), -np.inf, np.float32))  # a tile that the row can't see
    start = (np.float32([lowest]), np.float32([0]), np.float32([[0]]))
    with np.errstate(invalid="ignore"):
        empty = paged.online_softmax(
            nothing, twin.tensor(np.ones((4, 1), np.float32)), *map(twin.tensor, start)
        )
        most, total, acc = (x.item() for x in empty)
        parts = np.float32([3, most]), np.float32([2, total]), np.float32([[8], [acc]])
        merged = paged.merge(*map(twin.tensor, parts))
    print(f"begin with {name:6}: empty part {total}, merged {merged.item()}")

# %% [markdown] lang="en"
# **3. A slot that is masked too late.** Read everything, and give what lies behind the end the weight 0:
# 0 times NaN is NaN (notebook 04; vLLM, pull request 936). In a kernel it is one argument, `mask=`.
# The twin shows it by what is read, before any NaN turns up: in 05.2 your check counted the slots.
#
# ## Your answers
#
# **2. Does splitting CPU and GPU work always raise GPU utilization?** Not the part that counts. "Busy"
# means that some kernel runs. What it does with the card's bandwidth is decided by the kernel: how many
# times it moves each byte, and how many programs there are. Notebook 07 answers question 2 with all of
# its causes.

# %% [markdown] lang="ko" of="92bf98a8"
# **3. 너무 늦게 가린 슬롯.** 다 읽고 나서 끝 뒤의 것에 가중치 0을 줍니다. 0 곱하기 NaN은 NaN입니다(노트북 04,
# vLLM pull request 936). 커널에서는 인자 하나, `mask=`입니다. 쌍둥이는 NaN이 나타나기 전에 무엇을 읽었는지로
# 보여 줍니다. 05.2에서 검사가 슬롯을 센 이유입니다.
#
# ## 여러분의 답
#
# **2. CPU와 GPU의 일을 나누면 항상 GPU 이용률이 올라가는가?** 중요한 부분은 올라가지 않습니다. "바쁘다"는 것은
# 어떤 커널이든 돌고 있다는 뜻입니다. 카드의 대역폭으로 무엇을 하는지는 커널이 정합니다. 바이트마다 몇 번 옮기는지,
# 프로그램이 몇 개인지입니다. 질문 2는 노트북 07에서 모든 원인과 함께 답합니다.

# %% tags=["nbval-ignore-output"]
answer(
    2,
    bytes_over_the_least_gathered=ways["gather, then attend"].factor,
    bytes_over_the_least_a_program_a_query_head=ways["a program a query head"].factor,
    bytes_over_the_least_a_program_a_kv_head=ways["a program a kv head"].factor,
    programs_alone_without_the_split=whole[5].programs,
    programs_alone_with_the_split=split[5].programs,
    times_sooner_with_the_split_modelled=sooner,
)

# %% [markdown] lang="en"
# ## In vLLM and Triton Inference Server
#
# - **This kernel** has a sister in `vllm/v1/attention/ops/triton_unified_attention.py`, in the Triton
#   language: one kernel for prefill and decode, a program for some tokens of one kv head with all query
#   heads of its group, and a "3D" form that cuts the context in segments, merged by `reduce_segments`:
#   our `query_rows`, `walk` and `merge`. It is one of the backends that vLLM chooses among
#   (`TRITON_ATTN`); on NVIDIA's GPUs it mostly takes FlashAttention or FlashInfer, to the same plan.
# - **The first one**, `paged_attention_v1` in CUDA, had a grid of (heads, sequences): a program a query
#   head. `paged_attention_v2` added the split, parts of 512 tokens.
# - What they do that this one doesn't: 8-bit keys and values, ALiBi, soft caps and attention sinks, MLA,
#   and on Hopper asynchronous copies and warps with different jobs (FlashAttention-3).
# - **Triton Inference Server** (the server, not the language) has no attention kernel. Its TensorRT-LLM
#   backend brings TensorRT-LLM's: "masked multi-head attention" for decode, whose *multi-block mode* is
#   the split, and XQA kernels for grouped queries. Its vLLM backend is vLLM.
#
# With a GPU, `python3 -m labkit serve --device cuda` serves on these kernels, and
# `python3 -m labkit bench kernel` measures them.
#
# Next: notebook 06, where the batch that such a kernel works on is chosen anew in every step.

# %% [markdown] lang="ko" of="0c80db4c"
# ## vLLM과 Triton Inference Server에서는
#
# - **이 커널**의 자매가 `vllm/v1/attention/ops/triton_unified_attention.py`에 Triton 언어로 있습니다. 프리필과
#   디코드를 커널 하나로 처리하고, 프로그램 하나가 kv 헤드 하나의 토큰 몇 개를 그 그룹의 모든 쿼리 헤드와 함께
#   맡으며, 컨텍스트를 세그먼트로 잘라 `reduce_segments`로 합치는 "3D" 형태가 있습니다. 여기의 `query_rows`,
#   `walk`, `merge`입니다. vLLM이 고를 수 있는 백엔드 중 하나이고(`TRITON_ATTN`), NVIDIA GPU에서는 대개 같은
#   설계의 FlashAttention이나 FlashInfer를 씁니다.
# - **첫 커널**인 CUDA의 `paged_attention_v1`은 그리드가 (헤드, 시퀀스), 곧 쿼리 헤드마다 프로그램 하나였습니다.
#   `paged_attention_v2`가 512토큰씩의 쪼개기를 더했습니다.
# - 여기에는 없는 것: 8비트 키와 값, ALiBi, soft cap과 attention sink, MLA, 그리고 Hopper에서 비동기 복사와
#   역할이 다른 워프들(FlashAttention-3).
# - **Triton Inference Server**(언어가 아니라 서버)에는 어텐션 커널이 없습니다. TensorRT-LLM 백엔드가
#   TensorRT-LLM의 것을 가져옵니다. 디코드용 "masked multi-head attention"의 *multi-block mode*가 쪼개기이고,
#   그룹 쿼리에는 XQA 커널이 있습니다. vLLM 백엔드는 vLLM 그대로입니다.
#
# GPU가 있으면 `python3 -m labkit serve --device cuda`가 이 커널들로 서빙하고,
# `python3 -m labkit bench kernel`이 이 커널들을 잽니다.
#
# 다음은 노트북 06입니다. 이런 커널이 다루는 배치를 단계마다 새로 고릅니다.

# %% tags=["nbval-ignore-output"]
progress()
