# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] lang="en"
# # 02 · Static batching
#
# In October 2022 a user who ran GPT-J in Triton Inference Server (the server, not the kernel
# language), on its FasterTransformer backend, reported answers that changed with the company they
# kept (fastertransformer_backend, issue 53). Alone, `My name is`
# went on with ` Aleksey` and `I am from` with ` Belarus`. Sent together in one batch, the same
# model said ` Alex` and ` UK`. Two prompts of different length share a rectangle only with padding,
# and padding that the model reads, or counts, changes what it says. `transformers` had GPT-2 wrong
# in the same way until 2020 (pull request 7552).
#
# This notebook batches without that bug, and then measures what a batch of four is worth.
#
# **After this notebook you can**
#
# - put rows of different length into one forward pass so that each gets the answer it gets alone;
# - write the step of a static batch, and say what *static* costs, in token slots;
# - find the best batch size under an SLO, which need not be the one with the most throughput;
# - answer two of the ten questions with numbers of your own machine:
#   **3. Is batch size 4 production batching?** and **4. Does a larger batch always raise
#   throughput?**

# %% [markdown] lang="ko" of="5be5bfc9"
# # 02 · 정적 배칭
#
# 2022년 10월, Triton Inference Server(커널 언어가 아니라 서버)의 FasterTransformer 백엔드로 GPT-J를 돌리던 사용자가
# 누구와 함께 보내느냐에 따라 답이 달라진다고 보고했습니다(fastertransformer_backend, 이슈 53). 혼자 보내면 `My name is` 다음은
# ` Aleksey`, `I am from` 다음은 ` Belarus`였는데, 한 배치로 함께 보내자 같은 모델이 ` Alex`와 ` UK`를 내놓았습니다. 길이가
# 다른 두 프롬프트가 직사각형 하나에 들어가려면 패딩이 필요합니다. 모델이 패딩을 읽거나 자리로 세면 답이 바뀝니다. `transformers`도 2020년까지
# GPT-2에서 같은 문제가 있었습니다(pull request 7552).
#
# 이 노트북에서는 그 버그 없이 배치를 만들고, 배치 4가 얼마나 값어치가 있는지 잽니다.
#
# **이 노트북을 마치면**
#
# - 길이가 다른 행을 한 번의 순전파에 넣고도 각각 혼자일 때와 같은 답을 얻을 수 있습니다.
# - 정적 배치의 한 단계를 작성하고, *정적*이라는 것의 비용을 토큰 슬롯으로 말할 수 있습니다.
# - SLO를 지키는 가장 좋은 배치 크기를 찾을 수 있습니다. 처리량이 가장 높은 크기와 다를 수 있습니다.
# - 열 가지 질문 중 두 개에 직접 잰 숫자로 답할 수 있습니다.
#   **3. 배치 크기 4가 프로덕션 배칭인가?** **4. 배치가 커지면 처리량은 항상 늘어나는가?**

# %% header minutes=20

# %% [markdown] lang="en"
# ## If you start here: three minutes
#
# Notebook 01 built a server of one request at a time. Its model keeps nothing between calls
# (`use_cache=False`), so a token costs a forward pass over all tokens before it.
#
# ```
#  add(request)    step()                                       event
#  ──▶ line ──▶ token_ids [1, n] ──▶ logits [1, n, vocab] ──▶ (id, token, reason, time)
#      r3 r2 r1                      last row, best token
# ```
#
# - A **request** has `prompt_token_ids`, `output_token_ids` and `max_tokens`; `token_ids` is both
#   lists joined. An engine has `add`, `step` and `has_unfinished`, and every engine to come has.
# - **TTFT** is arrival to first token, waiting in line included; **ITL** a gap between two tokens,
#   **TPOT** their mean; **E2E** is arrival to last token.
# - The **roofline** of notebook 00: a pass takes at least as long as reading the weights, and at
#   least as long as computing. With few tokens in the pass the weights decide.
#
# `use("01.1")` gives your part of an earlier notebook if you wrote it, else labkit's.

# %% [markdown] lang="ko" of="14f78287"
# ## 여기서 시작한다면: 3분 요약
#
# 노트북 01에서는 요청을 한 번에 하나씩 처리하는 서버를 만들었습니다. 모델은 호출 사이에 아무것도
# 남기지 않으므로(`use_cache=False`) 토큰 하나에 앞의 모든 토큰에 대한 순전파 한 번이 듭니다.
#
# ```
#  add(request)    step()                                       event
#  ──▶ line ──▶ token_ids [1, n] ──▶ logits [1, n, vocab] ──▶ (id, token, reason, time)
#      r3 r2 r1                      last row, best token
# ```
#
# - **요청**에는 `prompt_token_ids`, `output_token_ids`, `max_tokens`가 있고, `token_ids`는 두 리스트를
#   이은 것입니다. 엔진에는 `add`, `step`, `has_unfinished`가 있으며 앞으로 나올 엔진도 모두 같습니다.
# - **TTFT**는 도착부터 첫 토큰까지(줄에서 기다린 시간 포함), **ITL**은 두 토큰 사이의 간격,
#   **TPOT**는 그 평균, **E2E**는 도착부터 마지막 토큰까지입니다.
# - 노트북 00의 **루프라인**: 순전파는 적어도 가중치를 읽는 시간만큼, 또 적어도 계산하는 시간만큼
#   걸립니다. 토큰이 적으면 가중치를 읽는 시간이 결정합니다.
#
# `use("01.1")`은 앞 노트북에서 여러분이 쓴 것이 있으면 그것을, 없으면 labkit의 것을 줍니다.

# %% tags=["nbval-ignore-output"]
from labkit.model import best_device, load, load_decoder

device = best_device()
smol = load("smollm2-135m", device=device)
tiny = load("tiny", device=device)
print("device:", device)

# %% [markdown] lang="en"
# ## Why batch at all
#
# A pass over one token reads every weight and uses it once. A pass over four tokens reads the same
# weights and uses each four times. Below: what a pass needs, and how long it takes at least on a
# processor that reads 20 GB/s and computes 200 GFLOP/s (modelled, round numbers of a laptop).

# %% [markdown] lang="ko" of="db861d29"
# ## 왜 배치로 묶는가
#
# 토큰 하나짜리 순전파는 모든 가중치를 읽어 한 번씩 씁니다. 토큰 넷짜리 순전파는 같은 가중치를 읽어
# 네 번씩 씁니다. 아래는 순전파에 필요한 것과, 20 GB/s로 읽고 200 GFLOP/s로 계산하는 프로세서에서
# 걸리는 최소 시간입니다(모델링한 값, 노트북 컴퓨터의 어림수).

# %%
from labkit.measure.roofline import forward_cost, step_time

for num_tokens in (1, 4, 16, 64, 256):
    cost = forward_cost(smol.model.config, num_tokens)
    seconds, bound = step_time(cost.num_flops, cost.num_bytes, 200e9, 20e9)
    print(
        f"{num_tokens:4} tokens  {cost.num_flops / 1e9:6.1f} GFLOP  {cost.num_bytes / 1e6:4.0f} MB"
        f"  at least {1e3 * seconds:4.0f} ms ({bound}), {1e3 * seconds / num_tokens:5.1f} ms a token"
    )

# %% [markdown] lang="en"
# Up to some 16 tokens the second, third and fourth row come for free. That is the whole promise of
# batching, and its limit stands in the same table. Remember it for experiment A: *without a cache*
# a row is not one token but all tokens of its request.
#
# ## Rows of equal length
#
# A tensor is a rectangle, prompts are not. The shorter ones are filled up with a padding token,
# and the question is on which side.
#
# ```
#             right                          left
#  row 0   The cat sat  on             The cat sat  on
#  row 1   Hello   ·    ·   ·           ·   ·   ·  Hello
#                           ▲                       ▲
#              what follows "·"?          what follows "Hello"?
# ```
#
# The next token is read off the *last column*, for all rows at once. So the last column must hold
# the last token of every row: padding stands on the left. A mask of the same shape says which
# columns are real, 1, and which nobody may look at, 0.
#
# Shapes: `sequences` is a list of R lists; `token_ids` and `mask` are `[R, longest]`.

# %% [markdown] lang="ko" of="181c7129"
# 토큰 16개 정도까지는 둘째, 셋째, 넷째 행이 공짜입니다. 배칭의 약속은 이것이 전부이고, 그 한계도 같은
# 표에 있습니다. 실험 A를 위해 기억해 두세요. *캐시가 없으면* 한 행은 토큰 하나가 아니라 그 요청의 모든
# 토큰입니다.
#
# ## 길이가 같은 행
#
# 텐서는 직사각형이지만 프롬프트는 그렇지 않습니다. 짧은 쪽을 패딩 토큰으로 채우는데, 문제는 어느
# 쪽에 채우느냐입니다.
#
# ```
#             right                          left
#  row 0   The cat sat  on             The cat sat  on
#  row 1   Hello   ·    ·   ·           ·   ·   ·  Hello
#                           ▲                       ▲
#              what follows "·"?          what follows "Hello"?
# ```
#
# 다음 토큰은 모든 행에 대해 한꺼번에 *마지막 열*에서 읽습니다. 그래서 마지막 열에는 모든 행의 마지막
# 토큰이 있어야 하고, 패딩은 왼쪽에 둡니다. 같은 모양의 마스크가 진짜 열은 1, 아무도 보면 안 되는 열은
# 0으로 알려 줍니다.
#
# 모양: `sequences`는 리스트 R개의 리스트, `token_ids`와 `mask`는 `[R, longest]`입니다.

# %% exercise="02.1"

# %% tags=["nbval-ignore-output"]
left_pad = use("02.1")

# %%
prompts = [[72, 105], [84, 104, 101, 32, 99, 97, 116], [79, 110, 99, 101]]
token_ids, mask = left_pad(prompts, 0)
for row, seen in zip(token_ids, mask, strict=True):
    print("".join(f"{token:5}" for token in row), "   mask", *seen)

# %% [markdown] lang="en"
# ## The same answer as alone
#
# Two things keep padding out of the answer, and each has been forgotten in public.
#
# - **The mask**: no token attends to a column whose mask is 0.
# - **The positions**: the first real token of a row has position 0, however much padding stands
#   before it. They come out of the mask: count the ones up to here, minus one.

# %% [markdown] lang="ko" of="8d7a6438"
# ## 혼자일 때와 같은 답
#
# 패딩이 답에 끼어들지 못하게 하는 것이 두 가지 있고, 둘 다 실제로 쓰이던 서버가 빠뜨린 적이 있습니다.
#
# - **마스크**: 어떤 토큰도 마스크가 0인 열을 보지 않습니다.
# - **위치**: 앞에 패딩이 얼마나 있든 행의 첫 진짜 토큰은 위치 0입니다. 위치는 마스크에서 나옵니다.
#   여기까지의 1을 세고 하나를 뺍니다.

# %% show="labkit.engine.static:positions_of"

# %%
import torch

from labkit.engine.static import positions_of

for row in positions_of(torch.tensor(mask, device=device)).tolist():
    print("".join(f"{position:5}" for position in row))

# %% [markdown] lang="en"
# Now the pass itself. `[R, longest]` ids go in, `[R, vocab]` scores come out: row i answers
# sequence i. Only the last column is worth turning into scores, since a score row is as wide as
# the vocabulary: 49,152 numbers here.

# %% [markdown] lang="ko" of="e7d80ee3"
# 이제 순전파입니다. `[R, longest]` 모양의 id가 들어가고 `[R, vocab]` 모양의 점수가 나옵니다. i번째 행은
# i번째 시퀀스에 대한 답입니다. 점수 한 행이 어휘만큼 넓어서(여기서는 숫자 49,152개) 마지막 열만 점수로
# 바꿀 가치가 있습니다.

# %% exercise="02.2"

# %% [markdown] lang="en"
# The test of a batch: does each row say what it says alone?

# %% [markdown] lang="ko" of="980d54c0"
# 배치의 시험: 각 행이 혼자일 때와 같은 말을 하는가?

# %% tags=["nbval-ignore-output"]
next_logits = use("02.2")

# %%
questions = [tiny.encode_chat(text) for text in ("Hi", "한글을 읽을 수 있나요?", "Why?")]
together = next_logits(tiny.model, questions, 0).argmax(-1).tolist()
alone = [int(next_logits(tiny.model, [question], 0).argmax()) for question in questions]
print("lengths ", [len(question) for question in questions])
print("alone   ", alone)
print("together", together)

# %% [markdown] lang="en"
# ## A batch, and the line behind it
#
# An engine takes four requests from the line, gives each a row, and steps until the *last* of them
# has ended. That is what **static** means: a row that is done stays in the rectangle, and nobody
# from the line takes its place. Why so? It is what a batch looks like in code: a list of prompts in,
# a list of answers out. To let somebody in half-way, each request needs a place and a memory of its
# own, whatever its neighbours do. Notebooks 03, 04 and 06 build these.
#
# Two invariants hold through all that:
#
# - result i of a pass belongs to the i-th request that was asked for, and to nobody else;
# - a request that has ended is neither asked for nor given a token again.

# %% [markdown] lang="ko" of="7834e0a0"
# ## 배치와 그 뒤의 줄
#
# 엔진은 대기열에서 요청 넷을 꺼내 각각 행을 주고, 그중 *마지막* 요청이 끝날 때까지 단계를 밟습니다.
# **정적**이란 바로 이것입니다. 끝난 행도 직사각형에 남고, 대기열의 누구도 그 자리를 차지하지 않습니다.
# 왜일까요? 코드로 쓴 배치의 모양이 그렇기 때문입니다. 프롬프트의 리스트가 들어가고 답의 리스트가 나옵니다.
# 도중에 누군가를 들이려면 이웃과 상관없는 자리와 메모리가 요청마다 있어야 합니다. 노트북 03, 04, 06에서
# 만듭니다.
#
# 그동안 두 가지 조건을 지킵니다.
#
# - 순전파의 i번째 결과는 i번째로 물어본 요청의 것이고, 다른 누구의 것도 아닙니다.
# - 끝난 요청은 다시 묻지도, 토큰을 주지도 않습니다.

# %% show="labkit.engine.batches:BatchEngine"

# %% exercise="02.3"

# %% [markdown] lang="en"
# With that, the engine of this notebook is a dozen lines: which rows, and which of them are wanted.
# The rows of finished requests are in `self.batch` still, so they are computed, and thrown away.

# %% [markdown] lang="ko" of="0aef0cd0"
# 이것이 있으면 이 노트북의 엔진은 열 몇 줄입니다. 어떤 행들이 있고 그중 무엇이 필요한지만 정합니다.
# 끝난 요청의 행도 아직 `self.batch`에 있어서 계산한 뒤 버려집니다.

# %% tags=["nbval-ignore-output"]
BatchEngine, next_logits = use("02.3"), use("02.2")

# %%
from labkit.engine.request import Request


class StaticEngine(BatchEngine):
    def __init__(self, model, eos_token_ids, batch_size=4):
        super().__init__(eos_token_ids, batch_size)
        self.model = model

    def next_logits(self, running):
        sequences = [request.token_ids for request in self.batch]
        wanted = [row for row, request in enumerate(self.batch) if request in running]
        return next_logits(self.model, sequences, 0)[wanted].float()


engine = StaticEngine(tiny.model, tiny.eos_token_ids, batch_size=2)
for name, length in (("a", 1), ("b", 4), ("c", 2)):
    engine.add(Request(name, [65, 66, 67], max_tokens=length, ignore_eos=True))
while engine.has_unfinished():
    events = engine.step()
    got = "  ".join(f"{e.request_id}: {e.token_id:3}" for e in events)
    print(f"{got:17}  line: {[r.request_id for r in engine.line]}")

# %% [markdown] lang="en"
# `c` waits for three steps beside an empty row. Look at the line of the second step.
#
# ## Leaving
#
# Two things end at different times. A *request* ends with its last token, and whatever memory it
# holds goes back then, once. The *batch* ends with its last request. Here a row holds no memory
# yet; in notebook 03 it holds a row of the KV cache and in notebook 04 blocks, and both engines
# run on the method that you write now.

# %% [markdown] lang="ko" of="3c39b873"
# `c`는 빈 행을 옆에 두고 세 단계를 기다립니다. 두 번째 단계의 대기열을 보세요.
#
# ## 떠나기
#
# 두 가지가 서로 다른 때에 끝납니다. *요청*은 마지막 토큰과 함께 끝나고, 들고 있던 메모리는 그때 한 번
# 돌아갑니다. *배치*는 마지막 요청과 함께 끝납니다. 여기서는 행이 아직 메모리를 갖지 않지만, 노트북
# 03에서는 KV 캐시의 한 행을, 04에서는 블록을 갖습니다. 두 엔진 모두 지금 쓰는 메서드 위에서 돕니다.

# %% exercise="02.4"

# %% [markdown] lang="en"
# Here is what a static batch computes for nobody, on 16 requests whose lengths differ as those of
# conversations do: most short, a few long (log-normal, from a seed). Each bar is a row of the
# rectangle, time runs to the right, one forward pass a step.

# %% [markdown] lang="ko" of="3c36c542"
# 정적 배치가 아무도 기다리지 않는 계산을 얼마나 하는지 봅시다. 요청 16개의 길이는 대화처럼 대부분
# 짧고 몇 개는 깁니다(로그 정규 분포, 시드 고정). 막대 하나가 직사각형의 한 행이고, 오른쪽으로 시간이
# 흐르며, 한 단계가 순전파 한 번입니다.

# %% tags=["nbval-ignore-output"]
from labkit.measure.experiments.batching import by_length, conversations, slots_of
from labkit.workbook.figures.batching import waste_figure

talks = conversations(seed=0, num_requests=16)
waste_figure(talks, 4, "16 conversations in batches of 4 (counted)")

# %% [markdown] lang="en"
# ## Experiment A: does a larger batch always raise throughput?
#
# The study group's short answer to **question 4** is: *at first; then memory, KV pressure, queue
# latency and running out of memory set in; the best point balances throughput and the latency SLO.*
#
# **Predict.** 16 short requests wait in line, with 63 tokens to make in all. How many times as many
# tokens per second does *your* engine, without a cache, make with batch 16 as with batch 1?

# %% [markdown] lang="ko" of="b2903698"
# ## 실험 A: 배치가 커지면 처리량은 항상 늘어나는가?
#
# **질문 4**에 대한 스터디 그룹의 짧은 답은 *처음에는 그렇다. 그다음에는 메모리, KV 압박, 대기 시간,
# OOM이 나타난다. 가장 좋은 지점은 처리량과 지연 시간 SLO의 균형이다* 입니다.
#
# **예측.** 짧은 요청 16개가 대기열에 있고, 만들 토큰은 모두 63개입니다. 캐시가 없는 *여러분의* 엔진은 배치 16에서
# 배치 1보다 초당 몇 배 많은 토큰을 만들까요?

# %% tags=["nbval-ignore-output"]
predict("02.throughput", low=0.5, high=16, unit="times as many tokens per second")

# %% [markdown] lang="en"
# **Run.** The same requests on two engines: yours, and for comparison the one of notebook 03 (with
# labkit's own decoder), whose rows have a KV cache, so that after the prompt a row is *one* token.
#
# A *slot* in the table is one place of the rectangle in one pass. Padding and the rows of requests
# that have ended waste it.

# %% [markdown] lang="ko" of="98c8ac3c"
# **실행.** 같은 요청을 두 엔진에 넣습니다. 하나는 여러분의 것이고, 다른 하나는 비교를 위한 노트북 03의
# 엔진(디코더도 labkit의 것)입니다. 행마다 KV 캐시가 있어서 프롬프트 뒤로는 한 행이 토큰 *하나*입니다.
#
# 표의 *슬롯*(slot)은 순전파 한 번에서 직사각형의 한 칸입니다. 패딩과 끝난 요청의 행은 슬롯을 낭비합니다.

# %% tags=["nbval-ignore-output"]
from labkit import rungs
from labkit.measure.experiments.batching import sweep
from labkit.workbook.figures.batching import throughput_figure

sizes = [1, 2, 4, 8, 16]
short = conversations(seed=3, num_requests=16, prompt=(4, 12), output=(2, 8))
decoder = load_decoder("smollm2-135m", device=device)
points, runs = sweep(lambda n: StaticEngine(smol.model, smol.eos_token_ids, n), short, sizes)
cached_points, _ = sweep(
    lambda n: rungs.make("cached", decoder, max_num_seqs=n, max_model_len=256),
    short,
    sizes,
    memory_of=lambda engine: engine.runner.cache.num_bytes,
)
throughput_figure({"no cache (yours)": points, "KV cache (notebook 03)": cached_points})

# %% tags=["nbval-ignore-output"]
for point, run in zip(points, runs, strict=True):
    print(
        f"batch {point.batch_size:2}: {point.tokens_per_s:5.1f} tokens/s   "
        f"TTFT p95 {point.ttft_s:5.2f} s   ITL p95 {1e3 * point.itl_s:4.0f} ms   "
        f"wasted slots {slots_of(short, point.batch_size).wasted_share:4.0%}"
    )
compare("02.throughput", points[-1].tokens_per_s / points[0].tokens_per_s, "times as many")

# %% [markdown] lang="en"
# **Compare.** Three regimes in one table.
#
# - Small batches wait for memory: a second row costs less than the first, and throughput climbs. How
#   much less depends on how many tokens a row has.
# - Then a pass computes as long as it reads: the *knee*. Without a cache a CPU is there early, since
#   a row of 12 tokens is 12 rows of the matrix product. From here on twice the rows take twice as
#   long.
# - Meanwhile the waste grows: the wider the batch, the longer its longest, the more padding and
#   finished rows. Throughput can *fall*, and ITL keeps growing for everybody.
#
# The engine with a cache makes several times as many tokens at every size. It has a knee here too:
# these answers are 2 to 8 tokens long, so a wide batch is mostly prompts, and soon mostly rows that
# have ended. Notebook 03 measures decode alone, where many rows still pay. On a GPU both knees lie
# farther out.
#
# ## The best batch
#
# Users don't buy throughput. They buy a first token soon and a steady flow after it: an SLO.
# **Goodput** counts the requests per second that met it (DistServe, OSDI 2024). A request that
# came too late costs as much as any other and is worth nothing.

# %% [markdown] lang="ko" of="a42f464e"
# **비교.** 표 하나에 세 구간이 있습니다.
#
# - 배치가 작으면 메모리를 기다립니다. 둘째 행은 첫째 행보다 싸고, 처리량이 올라갑니다. 얼마나 싼지는 한
#   행의 토큰 수에 달려 있습니다.
# - 그다음은 계산하는 데 읽는 데만큼 시간이 걸립니다. 이 꺾이는 지점이 무릎(knee)입니다. 캐시가 없으면 CPU는
#   일찍 여기에 이릅니다. 12토큰짜리 행 하나가 행렬 곱에서는 12행이기 때문입니다. 여기서부터는 행이 두
#   배면 시간도 두 배입니다.
# - 그사이 낭비가 늘어납니다. 배치가 넓을수록 가장 긴 요청이 길어지고, 패딩과 끝난 행이 많아집니다.
#   처리량이 *떨어질* 수도 있고, ITL은 모두에게 계속 늘어납니다.
#
# 캐시가 있는 엔진은 어느 크기에서나 토큰을 몇 배 더 만듭니다. 여기에도 무릎이 있습니다. 이 답들은 2에서
# 8토큰이라, 넓은 배치는 대부분 프롬프트이고 곧 대부분 끝난 행이 됩니다. 노트북 03은 디코드만 재는데,
# 거기서는 행이 많아도 이득입니다. GPU에서는 두 무릎 모두 더 멀리 있습니다.
#
# ## 가장 좋은 배치
#
# 사용자는 처리량을 사지 않습니다. 빠른 첫 토큰과 그 뒤의 꾸준한 흐름, 즉 SLO를 삽니다.
# **goodput**은 SLO를 지킨 요청을 초당으로 셉니다(DistServe, OSDI 2024). 너무 늦게 답을 받은 요청은
# 다른 요청만큼 비용이 들지만 가치는 없습니다.

# %% show="labkit.measure.batching:BatchRun"

# %% exercise="02.5"

# %% [markdown] lang="en"
# **Predict.** Let the SLO be: a first token within half the time that batch 1 needs for everybody,
# and after it no more than three times the TPOT that one user alone would see. Which batch size
# has the largest goodput on your engine?

# %% [markdown] lang="ko" of="90da738f"
# **예측.** SLO를 이렇게 정합시다. 첫 토큰은 배치 1이 모두를 처리하는 시간의 절반 안에, 그 뒤로는 혼자
# 쓰는 사용자가 보는 TPOT의 세 배 이하. 여러분의 엔진에서 goodput이 가장 큰 배치 크기는 얼마일까요?

# %% tags=["nbval-ignore-output"]
predict("02.best_batch", low=1, high=16, step=1, unit="requests in a batch")

# %% [markdown] lang="en"
# **Run.** The runs are those of the sweep.

# %% [markdown] lang="ko" of="c7d98c4f"
# **실행.** 앞의 스윕에서 나온 실행을 그대로 씁니다.

# %% tags=["nbval-ignore-output"]
from statistics import mean

from labkit.measure.experiments.batching import goodput
from labkit.workbook.figures.batching import goodput_figure

best_batch = use("02.5")
ttft_limit = runs[0].seconds / 2
tpot_limit = 3 * mean(one.tpot for one in runs[0].latencies if one.tpot)
best = best_batch(runs, ttft_limit, tpot_limit)
goodputs = {run.batch_size: goodput(run, ttft_limit, tpot_limit) for run in runs}
goodput_figure(runs, ttft_limit, tpot_limit, best)

# %% tags=["nbval-ignore-output"]
compare("02.best_batch", best or 0, "requests in a batch")

# %% [markdown] lang="en"
# **Compare.** With smaller batches requests are late by *queueing*: the line is long, and TTFT runs
# out. With larger ones every step carries more rows: TPOT grows, up to its limit and beyond where the
# processor is slow. The hatched bars know nothing of that: a server may be busy with requests of
# which not one comes in time.
#
# The same trade on the engine with a cache, with its KV memory. Choose a latency, move the SLO, and
# watch the best point move against the knee.

# %% [markdown] lang="ko" of="d4f4bbaa"
# **비교.** 배치가 작으면 요청이 *대기* 때문에 늦습니다. 줄이 길어 TTFT 한도를 넘깁니다. 배치가 크면
# 단계마다 행이 많아져 TPOT가 늘고, 프로세서가 느리면 한도도 넘습니다. 빗금 막대는 그것을 모릅니다.
# 서버는 제때 끝나는 요청이 하나도 없어도 바쁠 수 있습니다.
#
# 캐시가 있는 엔진에서 같은 트레이드오프를 KV 메모리와 함께 봅시다. 지연 시간의 종류를 고르고 SLO를 움직이면서
# 가장 좋은 지점이 무릎과 어떻게 어긋나는지 보세요.

# %% tags=["nbval-ignore-output"]
from labkit.workbook.widgets import batch_explorer

batch_explorer(
    cached_points, "Batches over a KV cache (measured)", slo_s=1.1 * cached_points[2].e2e_s
)

# %% [markdown] lang="en"
# ## Experiment B: is batch size 4 production batching?
#
# The study group's short answer to **question 3** is: *good for learning; in production total
# tokens, context length, KV use and memory decide, and engines batch by tokens.*
#
# **Predict.** The 16 conversations in batches of 4, without a cache: what share of all token slots
# goes to padding and to rows that have ended?

# %% [markdown] lang="ko" of="2121d60a"
# ## 실험 B: 배치 크기 4가 프로덕션 배칭인가?
#
# **질문 3**에 대한 스터디 그룹의 짧은 답은 *배우기에는 좋다. 프로덕션에서는 전체 토큰 수, 컨텍스트
# 길이, KV 사용량, 메모리가 결정하고, 엔진은 토큰 단위로 배치를 만든다* 입니다.
#
# **예측.** 대화 16개를 캐시 없이 4개씩 처리하면 전체 토큰 슬롯 중 몇 %가 패딩과 끝난 행에 쓰일까요?

# %% tags=["nbval-ignore-output"]
predict("02.wasted", low=0, high=100, unit="% of the token slots")

# %% [markdown] lang="en"
# **Run.** Counted from the lengths. Sorting the line by length puts like beside like; it also lets
# the short ones jump the line, and it needs to know how long an answer will be, which nobody does.

# %% [markdown] lang="ko" of="231ce591"
# **실행.** 길이만으로 셉니다. 대기열을 길이순으로 정렬하면 비슷한 것끼리 모입니다. 하지만 짧은 요청이
# 새치기를 하게 되고, 답이 얼마나 길지 미리 알아야 하는데 그것은 아무도 모릅니다.

# %%
for name, line in (("as they came", talks), ("sorted by length", by_length(talks))):
    for size in (1, 4, 16):
        slots = slots_of(line, size)
        print(
            f"{name:17} batch {size:2}: {slots.total:6,} slots, {slots.padding:5,} padding, "
            f"{slots.finished:6,} in finished rows: {slots.wasted_share:4.0%} wasted"
        )

# %% tags=["nbval-ignore-output"]
compare("02.wasted", 100 * slots_of(talks, 4).wasted_share, "% of the token slots")

# %% [markdown] lang="en"
# Tokens are one cost, people are another. A short question comes with a long one into the same
# batch of 2; a second short one is right behind them in the line.
#
# **Predict.** How many times longer does the *second* short question take, end to end, than one
# that has the engine to itself?

# %% [markdown] lang="ko" of="b64ce450"
# 토큰도 비용이지만 사람도 비용입니다. 짧은 질문 하나가 긴 질문과 함께 크기 2인 배치에 들어가고, 두 번째
# 짧은 질문이 바로 뒤에서 기다립니다.
#
# **예측.** *두 번째* 짧은 질문의 E2E는 엔진을 혼자 쓸 때보다 몇 배 길까요?

# %% tags=["nbval-ignore-output"]
predict("02.behind", low=1, high=60, unit="times as long")

# %% [markdown] lang="en"
# **Run.** On the real model, with your engine.

# %% [markdown] lang="ko" of="a0297bd3"
# **실행.** 진짜 모델과 여러분의 엔진으로 합니다.

# %% tags=["nbval-ignore-output"]
from labkit.measure.bench.drive import drive

asked = smol.encode_chat("Name a colour.")
first, second = (Request(n, asked, max_tokens=4, ignore_eos=True) for n in ("first", "second"))
long = Request("long", asked * 2, max_tokens=16, ignore_eos=True)
lonely = drive(StaticEngine(smol.model, smol.eos_token_ids, 2), [first]).latencies["first"]
shared = drive(StaticEngine(smol.model, smol.eos_token_ids, 2), [first, long, second]).latencies
for name, one in (
    ("alone", lonely),
    ("beside the long one", shared["first"]),
    ("behind them", shared["second"]),
):
    print(f"{name:20} TTFT {one.ttft:5.2f} s   TPOT {1e3 * one.tpot:4.0f} ms   E2E {one.e2e:5.2f} s")
compare("02.behind", shared["second"].e2e / lonely.e2e, "times as long")

# %% [markdown] lang="en"
# **Compare.** Beside the long one every step is as wide as the long one. Behind it is worse: a row
# of the batch stands empty for twelve steps, and the second question looks at it from the line.
# This is head-of-line blocking, and notebook 06 is built to end it.
#
# **Predict.** A first look at that engine, *continuous batching*: it counts tokens, not requests,
# and gives a free place away at the next step. On the 16 conversations, how many times as many
# tokens per second does it make as batches of 4 with the same decoder and a cache?

# %% [markdown] lang="ko" of="039183cd"
# **비교.** 긴 질문 옆에서는 모든 단계가 긴 질문만큼 넓습니다. 뒤에 있으면 더 나쁩니다. 배치의 행 하나가
# 열두 단계 동안 비어 있고, 두 번째 질문은 줄에서 그것을 바라만 봅니다. 이것이 head-of-line blocking이고,
# 노트북 06이 이를 없애려고 만들어졌습니다.
#
# **예측.** 그 엔진, *연속 배칭*(continuous batching)을 미리 봅시다. 요청이 아니라 토큰을 세고, 빈자리를
# 다음 단계에 바로 내줍니다. 대화 16개에서, 같은 디코더와 캐시로 4개씩 처리할 때보다 초당 몇 배 많은
# 토큰을 만들까요?

# %% tags=["nbval-ignore-output"]
predict("02.by_tokens", low=0.5, high=8, unit="times as many tokens per second")

# %% tags=["nbval-ignore-output"]
lines = {
    "batches of 4": ("cached", talks, {"max_num_seqs": 4}),
    "batches of 4, sorted": ("cached", by_length(talks), {"max_num_seqs": 4}),
    "by tokens": ("continuous", talks, {"kv_memory": "128MB", "prefix_caching": False}),
}
by_line = {}
for name, (rung, line, options) in lines.items():
    run = drive(rungs.make(rung, decoder, max_model_len=256, **options), line)
    waits = sorted(one.ttft for one in run.latencies.values())
    by_line[name] = run.tokens_per_s
    print(
        f"{name:21} {run.tokens_per_s:6.1f} tokens/s in {len(run.step_seconds):3} steps   "
        f"TTFT median {waits[len(waits) // 2]:5.2f} s, longest {waits[-1]:5.2f} s"
    )
compare("02.by_tokens", by_line["by tokens"] / by_line["batches of 4"], "times as many")

# %% [markdown] lang="en"
# **Compare.** The model, the weights and the tokens are the same. What differs is who is in the
# step. Sorting saves part of the waste; giving places away saves nearly all of it, and asks nobody
# to know the future. Not all of the gain comes from that: the engine by tokens has room for all 16 at
# once (128 MB of KV memory; four rows of 256 take 47 MB in float32). Notebook 04 compares at equal
# memory.
#
# This *supports* the group's answer, and *sharpens* it: the 4 is a limit in the wrong unit.
#
# ## What breaks
#
# **1. Positions counted from the padding.** Leave `position_ids` out, and column 5 is position 5.
# Models with *learned* positions (GPT-2) then read another row of their table. *Rotary* positions
# (Llama, SmolLM2) are relative: a row that is shifted as a whole answers the same. So the bug hides
# on one family and bites on the other. Two small models of random weights:

# %% [markdown] lang="ko" of="3efc21f9"
# **비교.** 모델도, 가중치도, 토큰도 같습니다. 다른 것은 누가 그 단계에 있느냐입니다. 정렬은 낭비의
# 일부를 줄이지만, 자리를 내주면 거의 전부를 줄이고 미래를 알 필요도 없습니다. 이득이 모두 여기서 나온
# 것은 아닙니다. 토큰으로 세는 엔진에는 16개가 한꺼번에 들어갈 자리가 있습니다(KV 메모리 128 MB. 256짜리
# 행 네 개는 float32로 47 MB). 같은 메모리로 하는 비교는 노트북 04에 있습니다.
#
# 그룹의 답을 *뒷받침*하고 *더 정확하게* 합니다. 4라는 한도는 단위가 잘못되었습니다.
#
# ## 무엇이 깨지는가
#
# **1. 패딩부터 위치를 센다.** `position_ids`를 빼면 5번째 열이 위치 5가 됩니다. 위치를 *학습한*
# 모델(GPT-2)은 표의 다른 행을 읽습니다. *로터리* 위치(Llama, SmolLM2)는 상대적이라 행 전체가 밀려도
# 답이 같습니다. 그래서 이 버그는 한 계열에서는 숨고 다른 계열에서는 드러납니다. 무작위 가중치의 작은 모델
# 둘로 봅시다.

# %% tags=["nbval-ignore-output"]
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
small = {"vocab_size": 300, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 2}
learned = GPT2LMHeadModel(GPT2Config(**small, bos_token_id=0, eos_token_id=0))
models = {"learned (GPT-2)": learned.eval().to(device), "rotary (Llama)": tiny.model}
rows, seen = (torch.tensor(x, device=device) for x in left_pad([[72, 105], [84, 104, 101, 32]], 0))
for name, model in models.items():
    with torch.inference_mode():
        unpadded = model(input_ids=rows[:1, 2:], use_cache=False).logits[0, -1]
        given = {"input_ids": rows, "attention_mask": seen, "use_cache": False}
        shifted = model(**given, position_ids=torch.arange(4, device=device)[None].expand(2, -1))
        mended = model(**given, position_ids=positions_of(seen))
    off = [float((out.logits[0, -1] - unpadded).abs().max()) for out in (shifted, mended)]
    print(f"{name:16} scores off by {off[0]:.5f}; with positions_of by {off[1]:.5f}")

# %% [markdown] lang="en"
# **2. The padding is also the end token.** Many checkpoints have no padding token, so servers take
# the end-of-sequence token, and that is fine. Making the *mask* by asking which ids are padding is
# not: a chat template writes that token after every turn, and all of them vanish.

# %% [markdown] lang="ko" of="befdc5f6"
# **2. 패딩이 종료 토큰이기도 하다.** 패딩 토큰이 없는 체크포인트가 많아서 서버들은 종료 토큰을 씁니다.
# 그것은 괜찮습니다. 하지만 어떤 id가 패딩인지 물어 *마스크*를 만들면 안 됩니다. 채팅 템플릿은 차례마다
# 그 토큰을 쓰는데, 그것이 모두 사라집니다.

# %%
end = smol.tokenizer.eos_token_id
chat = smol.encode_chat("Hi")
padded, by_count = left_pad([chat, chat * 2], end)
by_id = [[int(token != end) for token in row] for row in padded]
for name, made in (("by length", by_count), ("by id", by_id)):
    hidden = sum(made[row].count(0) for row in (0, 1)) - len(chat)
    print(f"mask {name:10} hides {len(chat)} columns of padding and {hidden} tokens of the chats")

# %% [markdown] lang="en"
# **3. Rows mixed up.** Alice has ended, Bob goes on. The pass was asked for Bob only, so it has one
# result. Deal it out over the *batch*, and Alice hears what was meant for Bob. With `strict=True`
# a `zip` of unequal lists raises instead of telling secrets.

# %% [markdown] lang="ko" of="bacbf64f"
# **3. 행이 뒤섞인다.** Alice는 끝났고 Bob은 계속합니다. 순전파에는 Bob의 것만 요청했으니 결과는 하나입니다.
# 이것을 *배치*에 나눠 주면 Bob에게 갈 말을 Alice가 듣습니다. `strict=True`이면 길이가 다른 리스트의
# `zip`은 비밀을 흘리는 대신 예외를 냅니다.

# %%
batch, running = ["Alice", "Bob"], ["Bob"]
results = ["Bob's account number"]
print("over the batch:  ", dict(zip(batch, results, strict=False)))
print("over the running:", dict(zip(running, results, strict=True)))

# %% [markdown] lang="en"
# ## Your answers
#
# **3. Is batch size 4 production batching?** No, and now in numbers: on lengths as people send
# them, most slots of your batches of 4 were padding or finished rows. The group's answer stands,
# sharpened: what is wrong is not the 4. It is that the batch is counted in *requests* and ends
# with its longest.
#
# **4. Does a larger batch always raise throughput?** No. It rises while the pass waits for the
# weights, and no longer; then waste and compute take over. Goodput may fall where throughput still
# looks well. The group's answer stands, sharpened: without a cache the turn comes
# before memory is short; with one, KV memory grows with every row, used or not, and notebook 04 is
# about that.

# %% [markdown] lang="ko" of="4fa28ec6"
# ## 여러분의 답
#
# **3. 배치 크기 4가 프로덕션 배칭인가?** 아닙니다. 이제 숫자로 말할 수 있습니다. 사람들이 보내는 길이에서
# 4개짜리 배치의 슬롯 대부분이 패딩이거나 끝난 행이었습니다. 그룹의 답은 맞고, 더 정확하게는 이렇습니다.
# 잘못은 4라는 숫자가 아니라, 배치를 *요청* 수로 세고 가장 긴 요청과 함께 끝낸다는 데 있습니다.
#
# **4. 배치가 커지면 처리량은 항상 늘어나는가?** 아닙니다. 순전파가 가중치를 기다리는 동안만 늘고, 그다음은
# 낭비와 계산이 차지합니다. 처리량이 아직 괜찮아 보이는 크기에서 goodput은 떨어질 수 있습니다. 그룹의 답은
# 맞고, 더 정확하게는 이렇습니다. 캐시가 없으면 메모리가 모자라기 전에 꺾입니다. 캐시가 있으면 쓰든 안 쓰든 행마다 KV 메모리가 늘어나고,
# 노트북 04가 그 문제를 다룹니다.

# %% tags=["nbval-ignore-output"]
answer(
    3,
    wasted_slots_percent=100 * slots_of(talks, 4).wasted_share,
    wasted_slots_sorted_percent=100 * slots_of(by_length(talks), 4).wasted_share,
    e2e_behind_a_long_one_times=shared["second"].e2e / lonely.e2e,
    tokens_per_s_batches_of_4=by_line["batches of 4"],
    tokens_per_s_by_tokens=by_line["by tokens"],
)

# %% tags=["nbval-ignore-output"]
answer(
    4,
    throughput_16_over_1_no_cache=points[-1].tokens_per_s / points[0].tokens_per_s,
    throughput_16_over_1_cached=cached_points[-1].tokens_per_s / cached_points[0].tokens_per_s,
    best_batch_under_the_slo=best or 0,
    goodput_best=max(goodputs.values()),
    goodput_16=goodputs[16],
    kv_megabytes_1=cached_points[0].memory_bytes / 1e6,
    kv_megabytes_16=cached_points[-1].memory_bytes / 1e6,
)

# %% [markdown] lang="en"
# ## The ladder
#
# The rungs so far on one small workload, the last one with your parts too.

# %% [markdown] lang="ko" of="8f873609"
# ## 사다리
#
# 지금까지의 단(rung)을 작은 작업 하나로 재 봅니다. 마지막 단은 여러분의 코드로도 잽니다.

# %% tags=["nbval-ignore-output"]
from labkit.workbook.ladder import ladder

ladder("static")

# %% [markdown] lang="en"
# ## In vLLM and Triton Inference Server
#
# - **Static batches** have no counterpart in vLLM: its scheduler (`vllm/v1/core/sched/scheduler.py`)
#   fills every step anew, up to `max_num_batched_tokens` and `max_num_seqs`. Batch size is a limit
#   there, not a setting.
# - **Padding** is gone as well: vLLM lays all tokens of a step end to end in one dimension, with
#   their positions and the start of each request beside them. Notebook 06 does the same.
# - **Triton Inference Server** (the server) batches *requests*, for models of any kind: its dynamic
#   batcher collects those that arrive within `max_queue_delay_microseconds`, up to `max_batch_size`,
#   and runs them as one. For an image classifier that is right; for token loops it is the static
#   batch of this notebook. Language models are therefore served through its TensorRT-LLM or vLLM
#   backend, whose own *in-flight batching* works step by step.
# - **Goodput** is an option of vLLM's benchmark: `vllm bench serve --goodput ttft:500 tpot:50`
#   (milliseconds).
#
# What they do that this does not: keep keys and values, so that a row is one token. Next, notebook
# 03 builds that cache.

# %% [markdown] lang="ko" of="ca2a894a"
# ## vLLM과 Triton Inference Server에서는
#
# - **정적 배치**에 대응하는 것은 vLLM에 없습니다. 스케줄러(`vllm/v1/core/sched/scheduler.py`)가 단계마다
#   `max_num_batched_tokens`와 `max_num_seqs`까지 새로 채웁니다. 거기서 배치 크기는 설정이 아니라 한도입니다.
# - **패딩**도 없습니다. vLLM은 한 단계의 모든 토큰을 1차원으로 이어 놓고, 위치와 각 요청의 시작을 함께
#   둡니다. 노트북 06도 그렇게 합니다.
# - **Triton Inference Server**(서버)는 모델의 종류와 상관없이 *요청*을 묶습니다. dynamic batcher가
#   `max_queue_delay_microseconds` 안에 도착한 요청을 `max_batch_size`까지 모아 한 번에 실행합니다. 이미지
#   분류기에는 맞지만, 토큰 루프에는 이 노트북의 정적 배치와 같습니다. 그래서 언어 모델은 단계마다 움직이는
#   *in-flight batching*을 가진 TensorRT-LLM이나 vLLM 백엔드로 서빙합니다.
# - **goodput**은 vLLM 벤치마크의 옵션입니다: `vllm bench serve --goodput ttft:500 tpot:50`(밀리초).
#
# 이들이 하고 여기서는 하지 않는 것: 키와 값을 보관해서 한 행을 토큰 하나로 만드는 일입니다. 다음 노트북
# 03에서 그 캐시를 만듭니다.

# %% tags=["nbval-ignore-output"]
progress()
