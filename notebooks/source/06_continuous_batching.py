# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] lang="en"
# # 06 · Continuous batching
#
# In September 2023 a user of a public server, vLLM 0.1.7, filed an issue titled *Long prompt will
# block all running generation* (vllm-project/vllm #1026). A prompt of several thousand tokens came,
# and every answer that was being written stopped for ten seconds. Nothing had crashed. The
# scheduler had put the whole prompt into one step, and everybody else waited for that step.
#
# In this notebook you write the scheduler that doesn't do this. It decides anew in each step who
# computes how many tokens, within a budget.
#
# **After this notebook you can**
#
# - write a scheduler without a prefill phase and without a decode phase;
# - say where a batch loses its slots, and where a step gets its length;
# - lay the tokens of many requests side by side in one row without padding, and sample them so
#   that a seeded request gives the same tokens alone and in a crowd;
# - answer three of the ten questions with numbers of your own machine:
#   **7. Are token streaming and continuous batching the same thing?**
#   **9. Is one ModelWorker a serialization point?**
#   **3. Is batch size 4 production batching?**

# %% [markdown] lang="ko" of="decc60fc"
# # 06 · 연속 배칭
#
# 2023년 9월, 공개 서버 vLLM 0.1.7의 한 사용자가 *Long prompt will block all running generation*
# 이라는 이슈를 올렸습니다(vllm-project/vllm #1026). 수천 토큰짜리 프롬프트가 들어오자 쓰고 있던
# 모든 답이 10초 동안 멈췄습니다. 죽은 것은 없었습니다. 스케줄러가 프롬프트 전체를 한 단계에
# 넣었고, 나머지는 모두 그 단계가 끝나기를 기다렸습니다.
#
# 이 노트북에서는 그러지 않는 스케줄러를 직접 씁니다. 단계마다 누가 토큰을 몇 개 계산할지를 예산
# 안에서 새로 정합니다.
#
# **이 노트북을 마치면**
#
# - 프리필(prefill) 단계도 디코드(decode) 단계도 따로 없는 스케줄러를 쓸 수 있습니다.
# - 배치가 어디에서 자리를 버리는지, 한 단계의 길이가 어디에서 오는지 말할 수 있습니다.
# - 여러 요청의 토큰을 패딩 없이 한 줄로 늘어놓고, seed를 준 요청이 혼자일 때나 여럿일 때나 같은
#   토큰을 내도록 샘플링할 수 있습니다.
# - 열 가지 질문 중 세 개에 직접 잰 숫자로 답할 수 있습니다.
#   **7. 토큰 스트리밍과 연속 배칭은 같은 것인가?**
#   **9. ModelWorker 하나는 직렬화 지점인가?**
#   **3. 배치 크기 4는 프로덕션 배칭인가?**

# %% header minutes=12

# %% [markdown] lang="en"
# ## If you start here: three minutes
#
# What the notebooks before this one have built, and this one stands on:
#
# ```
# request   prompt_token_ids + output_token_ids     what is known:    num_tokens
#           keys and values in the KV cache         what is computed: num_computed_tokens
#
# KV cache  blocks of 16 tokens     block  0    1    2    3    4    5  ...
#                                         [a a][a a][b b][a .][b .][   ]
#           block_table of a: [0, 1, 3]   of b: [2, 4]        (notebook 04)
#           slot of a token = block_table[position // 16] * 16 + position % 16
#
# step      token_ids [T] → decoder + cache → logits [R_sampled, vocab] → one token each
# ```
#
# - `0 ≤ num_computed_tokens ≤ num_tokens`, always. A new token is known, not yet computed.
# - A *static batch* (notebook 02) takes up to B requests and runs until the last one has ended.
# - With a KV cache (03) a request that generates computes one token a step; a prompt computes all
#   of its tokens, and only the last one is sampled from.
# - `BlockPool` (04) gives blocks out and takes them back; the `Books` of the scheduler keep track.
# - TTFT runs from a request's arrival to its first token, E2E to its last; ITL is the gap between
#   two tokens (01). A *rung* is one of labkit's engines, from `naive` to `preemptive`.
#
# `use("04.1")` and its like supply every earlier part, yours if it passed, else labkit's.

# %% [markdown] lang="ko" of="7787585f"
# ## 여기서 시작한다면: 3분 요약
#
# 앞의 노트북들이 만들었고 이 노트북이 딛고 서는 것들입니다.
#
# ```
# 요청      prompt_token_ids + output_token_ids     알려진 것:   num_tokens
#           KV 캐시에 든 키와 값                    계산된 것:   num_computed_tokens
#
# KV 캐시   16토큰짜리 블록         블록   0    1    2    3    4    5  ...
#                                         [a a][a a][b b][a .][b .][   ]
#           a의 block_table: [0, 1, 3]    b의 것: [2, 4]      (노트북 04)
#           토큰의 슬롯 = block_table[위치 // 16] * 16 + 위치 % 16
#
# 단계      token_ids [T] → 디코더 + 캐시 → 로짓 [R_sampled, vocab] → 토큰 하나씩
# ```
#
# - 언제나 `0 ≤ num_computed_tokens ≤ num_tokens`입니다. 새 토큰은 알려졌지만 아직 계산되지 않았습니다.
# - *정적 배치*(노트북 02)는 요청을 B개까지 묶어 마지막 요청이 끝날 때까지 돌립니다.
# - KV 캐시(03)가 있으면 생성 중인 요청은 단계마다 토큰 하나를 계산합니다. 프롬프트는 모든 토큰을
#   계산하고 마지막 토큰에서만 샘플링합니다.
# - `BlockPool`(04)은 블록을 내주고 돌려받으며, 스케줄러의 `Books`가 장부를 맡습니다.
# - TTFT는 요청이 도착해서 첫 토큰까지, E2E는 마지막 토큰까지의 시간이고, ITL은 토큰 둘 사이의
#   간격입니다(01). *단*(rung)은 `naive`에서 `preemptive`까지, labkit의 엔진 하나하나입니다.
#
# `use("04.1")` 같은 명령이 앞에서 만든 코드를 모두 대 줍니다. 통과한 것은 여러분의 것, 나머지는
# labkit의 것입니다.

# %% tags=["nbval-ignore-output"]
from labkit.model import best_device, load_decoder

device = best_device()
smol = load_decoder("smollm2-135m", device=device)
print(device, type(smol.model).__name__, smol.encode_chat("Hello")[:6], "...")

# %% [markdown] lang="en"
# ## Where a static batch loses
#
# Eight requests need between 2 and 8 steps; four run at a time. A static batch keeps the places of
# those that have ended until the longest is done. If a place were given away at once, how much
# would be saved? Count first, with a scheduler that you will understand in half an hour.

# %% [markdown] lang="ko" of="5cef25e0"
# ## 정적 배치는 어디에서 잃는가
#
# 요청 여덟 개가 2단계에서 8단계씩 필요하고 네 개씩 돕니다. 정적 배치는 끝난 요청의 자리를 가장 긴 요청이
# 끝날 때까지 비워 둡니다. 자리를 바로 넘겨준다면 얼마나 아낄까요? 먼저 세어 봅니다. 여기 쓰는
# 스케줄러는 반 시간 뒤면 이해하게 됩니다.

# %%
from labkit.engine.blocks import BlockPool
from labkit.engine.request import Request
from labkit.engine.scheduler import Scheduler
from labkit.measure.experiments import continuous as lab
from labkit.measure.schedule import play, watched
from labkit.workbook.figures.continuous import measures_figure, slots_figure

steps_needed = {"a": 8, "b": 2, "c": 3, "d": 2, "e": 2, "f": 8, "g": 3, "h": 2}
one_token_prompts = [Request(name, [1], max_tokens=n) for name, n in steps_needed.items()]
schedule = play(Scheduler(BlockPool(64, 16), max_num_seqs=4), one_token_prompts)
batches = {
    "static": lab.static_rows(steps_needed, 4),
    "continuous": lab.rows_of(schedule, 4),
}
slots = slots_figure(batches, "The same eight requests, four slots (counted)")
print(slots.story)

# %% tags=["nbval-ignore-output"]
slots

# %% [markdown] lang="en"
# The work is the same, 30 tokens. Of 34 wasted slots 10 are left, at the end, where nobody waits any
# more. That a batch may change at every step is the idea of Orca (Yu et al., OSDI 2022,
# "iteration-level scheduling"). Its authors report 36.9 times the throughput of FasterTransformer
# at the same latency, for GPT-3 175B.
#
# ## A step, written down
#
# Orca still knows two phases (initiation and increment), and a prompt goes in whole. Here there is
# one rule for everybody:
#
# > In each step, `num_computed_tokens` of every request moves toward `num_tokens`, by as many
# > tokens as the budget allows.
#
# A request that generates lacks 1 token. A new prompt lacks all of its tokens, one under way the
# rest. One that was *preempted* (its blocks were taken for others, notebook 08) lacks prompt *and*
# output. The scheduler needs no case for any of them. vLLM V1 is built so; the chunks are
# Sarathi-Serve's (Agrawal et al., OSDI 2024), who report 2.6 times the serving capacity of the vLLM
# of that time, for Mistral-7B on one A100 and with bounds on the tail latency.
#
# What a step computes is written down as a *plan*: a `Chunk` for each request that takes part.
# Its chunk `samples` if after it nothing is left to compute; only then a new token follows.

# %% [markdown] lang="ko" of="fd1a6bdb"
# 일은 30토큰으로 같습니다. 버려지던 자리 34개 중 10개가 남는데, 더는 아무도 기다리지 않는 끝부분입니다. 배치를 단계마다 바꿔도 된다는 것이 Orca(Yu et al.,
# OSDI 2022, "iteration-level scheduling")의 생각입니다. 저자들은 GPT-3 175B에서 같은 지연 시간에 FasterTransformer의
# 36.9배 처리량을 보고했습니다.
#
# ## 한 단계를 글로 적기
#
# Orca에는 아직 두 국면(phase, initiation과 increment)이 있고 프롬프트는 통째로 들어갑니다. 여기서는
# 모두에게 규칙이 하나입니다.
#
# > 단계마다 모든 요청의 `num_computed_tokens`가 `num_tokens`를 향해, 예산이 허락하는 토큰 수만큼
# > 나아간다.
#
# 생성 중인 요청은 토큰 1개가 모자랍니다. 새 프롬프트는 전부가, 진행 중인 프롬프트는 나머지가
# 모자랍니다. *선점된*(블록을 다른 요청에 빼앗긴, 노트북 08) 요청은 프롬프트*와* 출력이 모자랍니다.
# 스케줄러는 어느 것도 따로 다루지 않습니다. vLLM V1이 이렇게 만들어졌습니다. 청크(chunk)는
# Sarathi-Serve(Agrawal et al., OSDI 2024)의 것으로, 꼬리 지연 시간을 제한한 채 A100 한 장의
# Mistral-7B에서 당시 vLLM의 2.6배 서빙 용량을 보고했습니다.
#
# 한 단계가 계산할 것은 *계획*으로 적습니다. 참여하는 요청마다 `Chunk`가 하나입니다. 그 뒤로
# 계산할 것이 남지 않으면 그 청크는 샘플링하고(`samples`), 그때만 새 토큰이 나옵니다.

# %% show="labkit.engine.plan:Chunk"

# %% show="labkit.engine.plan:StepPlan"

# %% [markdown] lang="en"
# ## The scheduler
#
# Here it is once, whole, its bodies left out. It holds no tensor and asks no clock: the time comes
# in as `now`. So it can be tested without a model, and a schedule is the same on every machine.
#
# - `known` has every unfinished request, `running` the admitted ones in order of admission; the
#   `policy` owns those that wait. The default is `FCFS`, first come, first served; notebook 08
#   writes others.
# - `_continue(plan, request)` plans the next tokens of a running request. `_admit(plan)` starts
#   waiting ones. Both use up `plan.budget`, and do nothing when it is 0. `_budget()` says how many
#   tokens the step may have, `_end_overdue(plan)` ends requests whose deadline has passed.
# - Holes marked 07 and 08 belong to later notebooks.

# %% [markdown] lang="ko" of="90d2e61d"
# ## 스케줄러
#
# 본문을 뺀 전체를 한 번 보여 드립니다. 텐서를 들고 있지 않고 시계도 보지 않습니다. 시각은 `now`로
# 들어옵니다. 그래서 모델 없이 테스트할 수 있고, 어느 장비에서나 같은 스케줄이 나옵니다.
#
# - `known`에는 끝나지 않은 요청이 모두, `running`에는 받아들인 요청이 받은 순서대로 있고, 기다리는
#   요청은 `policy`가 가지고 있습니다. 기본은 선착순(`FCFS`)이고 다른 정책은 노트북 08에서 씁니다.
# - `_continue(plan, request)`는 실행 중인 요청의 다음 토큰을 계획합니다. `_admit(plan)`은 기다리던
#   요청을 시작합니다. 둘 다 `plan.budget`을 쓰고, 0이면 아무것도 하지 않습니다. `_budget()`은 이번
#   단계의 토큰 수를 말하고, `_end_overdue(plan)`은 마감이 지난 요청을 끝냅니다.
# - 07과 08로 표시된 빈칸은 뒤의 노트북에서 채웁니다.

# %% show="labkit.engine.scheduler:Scheduler"

# %% [markdown] lang="en"
# ## Who goes first
#
# The budget (`max_num_batched_tokens`) bounds how long a step takes. So the order in which it is
# spent decides who waits:
#
# 1. **Those that generate**, one token each. They are few tokens, and somebody is reading along.
# 2. **Prompts under way.** They hold blocks already, and ending them frees the budget for others.
# 3. **New ones**, from what is left.
#
# In any other order somebody starves, and the check draws who. The calls to the policy are given
# by the docstring: `in_order` says who of the running is first, `_admit` with `before` lets only
# those in that may preempt this one. With FCFS nobody may, and the call does nothing.

# %% [markdown] lang="ko" of="ddfbec4d"
# ## 누가 먼저인가
#
# 예산(`max_num_batched_tokens`)은 한 단계의 길이를 제한합니다. 그래서 예산을 쓰는 순서가 누가
# 기다릴지를 정합니다.
#
# 1. **생성 중인 요청**, 토큰 하나씩. 토큰 수가 적고, 누군가 읽고 있습니다.
# 2. **진행 중인 프롬프트.** 이미 블록을 쥐고 있고, 끝나야 예산이 다른 요청에 돌아갑니다.
# 3. **새 요청**, 남은 예산으로.
#
# 순서가 다르면 누군가 굶고, 누구인지 검사가 그려 줍니다. 정책을 부르는 방법은 docstring에
# 있습니다. `in_order`는 실행 중인 요청의 순서를 말하고, `before`를 준 `_admit`은 그 요청을 선점해도
# 되는 요청만 들입니다. FCFS에서는 아무도 선점할 수 없어서 이 호출은 아무 일도 하지 않습니다.

# %% exercise="06.1"

# %% [markdown] lang="en"
# Your scheduler at work, on a virtual clock in which a step takes a second. `chat` generates; at
# second 3 comes a prompt of 40 tokens, and the budget is 16. Each line is a step: who computes how
# many tokens.

# %% [markdown] lang="ko" of="fc797c81"
# 한 단계가 1초인 가상 시계에서 여러분의 스케줄러를 돌려 봅니다. `chat`은 생성 중이고, 3초에 40토큰
# 프롬프트가 옵니다. 예산은 16입니다. 한 줄이 한 단계이고, 누가 토큰을 몇 개 계산하는지 보입니다.

# %% tags=["nbval-ignore-output"]
MyScheduler = use("06.1")

# %%
pool = BlockPool(64, 16, prefix_caching=False)
requests = [
    Request("chat", [1] * 6, max_tokens=10),
    Request("long", [1] * 40, max_tokens=3, arrival=3.0),
    Request("next", [1] * 8, max_tokens=4, arrival=4.0),
]
schedule = play(MyScheduler(pool, max_num_batched_tokens=16), requests)
for number, step in enumerate(schedule.steps):
    print(f"{number:2}", {part.request_id: part.num_tokens for part in step.parts})

# %% [markdown] lang="en"
# The same as a picture, and then step by step: move the slider, or use the arrow keys.

# %% [markdown] lang="ko" of="3fa12a72"
# 같은 것을 그림으로, 그다음 단계별로 봅니다. 슬라이더를 움직이거나 화살표 키를 쓰세요.

# %% tags=["nbval-ignore-output"]
from labkit.workbook.widgets import timeline

timeline(schedule, "A long prompt beside a chat, budget 16 (virtual clock)")

# %% [markdown] lang="en"
# ## The one place where requests advance
#
# Between `plan` and `commit` the step is computed, which takes the longest; the world goes on
# meanwhile. A client may have left. So the plan changes nothing that can't be taken back, and
# `commit` writes down what has happened: computed tokens, output, events, freed blocks.
#
# `sampled` has a result for each chunk that samples, and for no other, in order:
#
# ```
# plan.chunks   a: 1 token   b: 15 of 40   c: 3 tokens      samples: a, c
# sampled       [result of a,              result of c]
# ```
#
# The invariant: *one result is taken for each chunk that samples, whatever became of its request*.
# Who skips an aborted request before taking its result gives its token to the next one.
#
# At hand: `self.pace.observe(num_tokens, seconds)`, `self.books.copied(plan)`,
# `self.books.note_computed(request, chunk)`, `last_events(plan.failed, now)` → the first events,
# `advance(request, result, now)` → the event of a new token,
# `self.policy.charge(request, num_prompt_tokens, num_output_tokens)`, `self._start_copies(request)`
# (of a prompt that is to be answered n times) and `self._forget(request)`.

# %% [markdown] lang="ko" of="d88b8c59"
# ## 요청이 나아가는 단 한 곳
#
# `plan`과 `commit` 사이에서 단계를 계산하고, 여기에 시간이 가장 많이 듭니다. 그동안에도 세상은
# 움직입니다. 클라이언트가 떠났을 수도 있습니다. 그래서 계획은 되돌릴 수 없는 것을 바꾸지 않고,
# 실제로 일어난 일은 `commit`이 적습니다. 계산된 토큰, 출력, 이벤트, 비운 블록입니다.
#
# `sampled`에는 샘플링하는 청크마다 결과가 하나씩, 순서대로 있습니다.
#
# ```
# plan.chunks   a: 1토큰   b: 40 중 15   c: 3토큰        샘플링: a, c
# sampled       [a의 결과,               c의 결과]
# ```
#
# 지켜야 할 조건: *요청이 어떻게 되었든, 샘플링하는 청크마다 결과를 하나 꺼낸다*. 취소된 요청의 결과를
# 꺼내기 전에 건너뛰면 그 토큰이 다음 요청에 갑니다.
#
# 쓸 수 있는 것: `self.pace.observe(토큰 수, 초)`, `self.books.copied(plan)`,
# `self.books.note_computed(request, chunk)`, `last_events(plan.failed, now)` → 첫 이벤트들,
# `advance(request, result, now)` → 새 토큰의 이벤트,
# `self.policy.charge(request, 프롬프트 토큰 수, 출력 토큰 수)`, `self._start_copies(request)`(n번 답할
# 프롬프트의 사본), `self._forget(request)`.

# %% exercise="06.2"

# %% [markdown] lang="en"
# Two clients, and a model that knows their answers by heart. While the third step is computed, Ann
# presses stop. Bob must not notice.

# %% [markdown] lang="ko" of="85fa9db9"
# 클라이언트 둘과, 답을 외우고 있는 모델입니다. 세 번째 단계를 계산하는 동안 ann이 정지를 누릅니다.
# bob은 알아채지 못해야 합니다.

# %% tags=["nbval-ignore-output"]
MyScheduler = use("06.2")

# %%
from labkit.workbook.fakes_continuous import broken, talk

scripts = {"ann": "the sky is blue because of the air", "bob": "two and two make four"}
talk(MyScheduler, scripts, abort=(3, "ann"))

# %% [markdown] lang="en"
# ## One row without padding
#
# A plan mixes one token of this request with fifteen of that one. The static batch would pad both
# to a rectangle `[2, 15]`. Here the tokens of all requests stand one after the other, `[T]`, and
# three numbers for each token say all that the model needs: which token, at which position of *its
# own* sequence, and in which slot of the cache its keys and values go.
#
# ```
# spans          a: 1 token at 8        b: 2 tokens at 0     c: 2 at 2, samples=False
# token_ids      [ 15,                   21, 22,              31, 32 ]     T = 5
# positions      [ 8,                    0, 1,                2, 3   ]
# query_start    [ 0,                    1,                   3,         5 ]
# logits_rows    [ 0,                        2 ]              c asks for none
# ```
#
# `query_start` `[R + 1]` says where each request begins. `logits_rows` saves work: the last layer,
# from hidden size to vocabulary, is computed for these 2 rows instead of all 5. A `Span` is what one
# request brings; `FlatBatch` is what the model reads.

# %% [markdown] lang="ko" of="6332ecd5"
# ## 패딩 없는 한 줄
#
# 계획에는 이 요청의 토큰 하나와 저 요청의 토큰 열다섯 개가 섞여 있습니다. 정적 배치라면 `[2, 15]`
# 직사각형이 되도록 패딩했을 것입니다. 여기서는 모든 요청의 토큰이 `[T]`로 줄지어 섭니다. 모델에
# 필요한 것은 토큰마다 숫자 셋입니다. 어떤 토큰인지, *자기* 시퀀스의 어느 위치인지, 키와 값이
# 캐시의 어느 슬롯으로 가는지입니다.
#
# ```
# span           a: 위치 8의 1토큰      b: 위치 0의 2토큰    c: 위치 2의 2토큰, samples=False
# token_ids      [ 15,                   21, 22,              31, 32 ]     T = 5
# positions      [ 8,                    0, 1,                2, 3   ]
# query_start    [ 0,                    1,                   3,         5 ]
# logits_rows    [ 0,                        2 ]              c는 요구하지 않음
# ```
#
# `query_start` `[R + 1]`은 각 요청이 어디에서 시작하는지 말합니다. `logits_rows`는 일을 줄입니다. 은닉
# 크기에서 어휘로 가는 마지막 층을 다섯 행이 아니라 이 두 행만 계산합니다. `Span`은 요청 하나가 가져오는 것이고, `FlatBatch`는 모델이 읽는 것입니다.

# %% show="labkit.model.flat_batch:Span"

# %% show="labkit.model.flat_batch:FlatBatch"

# %% exercise="06.3"

# %% [markdown] lang="en"
# The three spans of the drawing above, blocks of 4 tokens:

# %% [markdown] lang="ko" of="660b7a3a"
# 위 그림의 span 셋을, 4토큰짜리 블록으로 만들어 봅니다.

# %% tags=["nbval-ignore-output"]
FlatBatch = use("06.3")

# %%
from labkit.model.flat_batch import Span

spans = [
    Span([15], start=8, block_table=[2, 5, 0]),
    Span([21, 22], start=0, block_table=[1]),
    Span([31, 32], start=2, block_table=[3], samples=False),
]
batch = FlatBatch.build(spans, block_size=4)
for name in ("token_ids", "positions", "slot_mapping", "query_start", "logits_rows"):
    print(f"{name:13}", getattr(batch, name).tolist())
print("block_tables ", batch.block_tables.tolist(), " context_lens", batch.context_lens)

# %% [markdown] lang="en"
# ## From the line into the step
#
# `_admit` has found a slot, and blocks enough for all tokens of the request that is next. `_start`
# puts it to work. It is where a chunk gets its size: at most what is left of the budget, and at
# most what is left of the request *after* the tokens that the prefix cache already holds. A prompt
# of 1,000 tokens with 960 of them cached costs 40.
#
# At hand: `self.policy.admit(request, now)` takes it out of the line, `self.policy.charge(request,
# num_prompt_tokens, 0)` charges it, `self.books.start(plan, request, shared, num_cached)` gives it
# what it shares; `self.books.needed(request, n)` says how many blocks its next n tokens take, and
# `self.books.take(plan, request, n, needed)` takes them and plans the tokens.

# %% [markdown] lang="ko" of="03e55ebf"
# ## 대기열에서 단계로
#
# `_admit`이 자리 하나와, 다음 요청의 모든 토큰에 충분한 블록을 찾았습니다. `_start`가 그 요청을
# 일하게 합니다. 청크의 크기가 정해지는 곳입니다. 남은 예산을 넘지 않고, 접두사 캐시가 이미 가진
# 토큰을 *뺀* 나머지를 넘지 않습니다. 1,000토큰 프롬프트라도 960개가 캐시에 있으면 40토큰만 듭니다.
#
# 쓸 수 있는 것: `self.policy.admit(request, now)`는 줄에서 빼고, `self.policy.charge(request, 프롬프트
# 토큰 수, 0)`은 값을 청구하고, `self.books.start(plan, request, shared, num_cached)`는 공유하는 블록을
# 줍니다. `self.books.needed(request, n)`은 다음 n토큰에 블록이 몇 개 드는지 말하고,
# `self.books.take(plan, request, n, needed)`는 블록을 가져와 그 토큰을 계획합니다.

# %% exercise="06.4"

# %% [markdown] lang="en"
# The same prompt of 40 tokens twice, blocks of 16, budget 16. The second one finds two full blocks
# (32 tokens) and starts at position 32.

# %% [markdown] lang="ko" of="c14a6eb9"
# 같은 40토큰 프롬프트를 두 번, 블록 16, 예산 16으로 돌립니다. 두 번째는 가득 찬 블록 둘(32토큰)을
# 찾아 위치 32에서 시작합니다.

# %% tags=["nbval-ignore-output"]
MyScheduler = use("06.4")

# %%
twice = [
    Request("first", list(range(40)), max_tokens=2),
    Request("again", list(range(40)), max_tokens=2, arrival=5.0),
]
schedule = play(MyScheduler(BlockPool(64, 16), max_num_batched_tokens=16), twice)
for step in schedule.steps:
    print([(part.request_id, part.start, part.num_tokens) for part in step.parts])

# %% [markdown] lang="en"
# ## A token that doesn't depend on the crowd
#
# With a temperature above 0 the next token is drawn. The order of the steps matters:
#
# 1. divide by the temperature, each row by its own;
# 2. filter: `min_p`, `top_k`, `top_p`, in this order, each on the rows that ask for it;
# 3. draw from what is left with one number in [0, 1).
#
# Where does that number come from? A client that sends `seed` wants the same answer again. If the
# batch has one random generator, the answer depends on how many neighbours drew before; if the row
# number decides, on who has left. TensorRT-LLM once looked the seeds up by batch slot instead of by
# request (pull request #1742), so a request could draw with another one's seed. Here the number
# is a pure function, `uniform(seed, number of output tokens)`: no state, so nothing to lose, not
# even when the request is preempted and computed again.
#
# At hand: `column(values, logits)` → `[R, 1]`, one value a row; `apply_temperature(logits, column)`;
# `FILTERS`, of each `(name, asks, keep)`: the field of `request.sampling`, `asks(value)` → whether a
# row wants it, `keep(rows of logits, column of their values)` → these rows filtered;
# `pick(logits, column of numbers)` → the tokens `[R]`.

# %% [markdown] lang="ko" of="ad306260"
# ## 옆에 누가 있든 같은 토큰
#
# 온도가 0보다 크면 다음 토큰을 확률에 따라 뽑습니다. 순서가 중요합니다.
#
# 1. 온도로 나눕니다. 행마다 자기 온도로.
# 2. 거릅니다. `min_p`, `top_k`, `top_p` 순서로, 요구한 행에만.
# 3. 남은 것에서 [0, 1)의 수 하나로 뽑습니다.
#
# 그 수는 어디에서 올까요? `seed`를 보낸 클라이언트는 같은 답을 다시 받고 싶습니다. 배치에 난수
# 생성기가 하나뿐이면 답은 옆에서 몇 번 뽑았느냐에 달리고, 행 번호로 정하면 누가 떠났느냐에
# 달립니다. TensorRT-LLM은 한때 seed를 요청이 아니라 배치 슬롯으로 찾았습니다(pull request #1742).
# 그래서 요청이 남의 seed로 뽑을 수 있었습니다. 여기서는 순수 함수 `uniform(seed, 출력 토큰 수)`입니다. 상태가
# 없으니 잃을 것도 없고, 요청이 선점되어 다시 계산되어도 마찬가지입니다.
#
# 쓸 수 있는 것: `column(values, logits)` → `[R, 1]`, 행마다 값 하나. `apply_temperature(logits,
# column)`. `FILTERS`는 `(name, asks, keep)`의 목록으로, `name`은 `request.sampling`의 필드,
# `asks(value)`는 그 행이 필터를 요구하는지, `keep(로짓의 행들, 그 값들의 column)`은 거른 행들입니다.
# `pick(logits, 수의 column)` → 토큰 `[R]`.

# %% exercise="06.5"

# %% [markdown] lang="en"
# One seeded request on `tiny`, three times: alone; among three others; and in a pool so small that
# it is preempted on the way and computed again.

# %% [markdown] lang="ko" of="a90a9d16"
# seed를 준 요청 하나를 `tiny`에서 세 번 돌립니다. 혼자, 다른 셋과 함께, 그리고 풀이 작아서 도중에
# 선점되어 다시 계산될 때입니다.

# %% tags=["nbval-ignore-output"]
draw = use("06.5")

# %%
from labkit.model.sampling_params import SamplingParams

tiny = load_decoder("tiny", device=device)
sample = draw.__globals__["sample"]  # labkit's sampler around your `draw`


def seeded(num_others, num_blocks):
    params = SamplingParams(temperature=1.0, top_k=50, seed=7, max_tokens=24, ignore_eos=True)
    others = [
        Request(f"other-{i}", list(range(20, 50)), max_tokens=40, ignore_eos=True)
        for i in range(num_others)
    ]
    mine = Request("mine", list(range(60, 80)), sampling=params)
    engine = lab.assemble(tiny, scheduler=MyScheduler, sample=sample, num_blocks=num_blocks)
    lab.serve(engine, [*others, mine])
    return mine


alone, crowded, preempted = seeded(0, 32), seeded(3, 32), seeded(1, 6)
print("alone = in a batch:       ", alone.output_token_ids == crowded.output_token_ids)
print("alone = after preemption: ", alone.output_token_ids == preempted.output_token_ids)
print("preempted:                ", preempted.num_preemptions > 0)

# %% [markdown] lang="en"
# ## Experiment A: four ways to answer
#
# The study group's short answer to **question 7, are token streaming and continuous batching the
# same thing?** is: *no; one is how results are delivered, the other how the GPU is scheduled, and
# production uses both.* If that is so, each can be switched on without the other, and each must
# move different numbers. So try all four.
#
# The same eight questions go to two engines, four at a time in both: the rung `paged`, fixed
# batches, and your scheduler. Four arrive at once, four more while those are answered. Each run is
# watched by a client that gets each piece of text at once, and by one that gets all at the end.
#
# **Predict.** How many times sooner does a client see its first text with both than with neither?

# %% [markdown] lang="ko" of="fa22b3c7"
# ## 실험 A: 네 가지로 답하기
#
# **질문 7** “토큰 스트리밍과 연속 배칭은 같은 것인가?”에 대한 스터디 그룹의 짧은 답은 *아니다. 하나는
# 결과를 전달하는 방식이고 하나는 GPU를 스케줄링하는 방식이며, 프로덕션은 둘 다 쓴다* 입니다. 그렇다면
# 하나만 켤 수도 있어야 하고, 움직이는 숫자도 서로 달라야 합니다. 네 가지를 모두 해 봅시다.
#
# 같은 질문 여덟 개를 두 엔진에 보냅니다. 둘 다 한 번에 네 개씩입니다. 하나는 고정 배치를 쓰는 `paged`
# 단이고, 하나는 여러분의 스케줄러입니다. 네 개는 동시에, 네 개는 그사이에 옵니다. 각 실행을, 조각을
# 바로 받는 클라이언트와 끝에 한꺼번에 받는 클라이언트가 함께 지켜봅니다.
#
# **예측.** 둘 다 켜면 둘 다 끈 때보다 첫 텍스트를 몇 배 빨리 볼까요?

# %% tags=["nbval-ignore-output"]
predict("06.four_ways", low=1, high=30, unit="times sooner")

# %% [markdown] lang="en"
# **Run.** First a warm-up, which also tells how long a step takes here: arrivals are spaced by
# steps, so that a slow machine sees the same situation as a fast one.

# %% [markdown] lang="ko" of="2b2a727d"
# **실행.** 먼저 몸풀기입니다. 여기서 한 단계가 얼마나 걸리는지도 알 수 있습니다. 도착 간격을 단계로
# 정하므로 느린 장비도 빠른 장비와 같은 상황을 봅니다.

# %% tags=["nbval-ignore-output"]
from labkit import rungs
from labkit.measure.metrics import latency
from labkit.model.detokenizer import Detokenizer


def pieces():
    return Detokenizer(smol.tokenizer)


warm_up = Request("hello", smol.encode_chat("Name three colours."), 12, ignore_eos=True)
hello = lab.serve(lab.assemble(smol, scheduler=MyScheduler), [warm_up], pieces)["hello"]
step_s = latency(hello.arrival, hello.token_times).tpot
print(f"{hello.text!r}, {1e3 * step_s:.0f} ms a step")

# %% tags=["nbval-ignore-output"]
lengths = {"a": 32, "b": 6, "c": 10, "d": 8, "e": 8, "f": 32, "g": 10, "h": 6}
topics = "bread rain clocks bees trains violins leaves stars".split()


def eight():
    return [
        Request(
            name,
            smol.encode_chat(f"Tell me about {topic}."),
            lengths[name],
            ignore_eos=True,
            arrival=max(0, 2 * (place - 3)) * step_s,
        )
        for place, (name, topic) in enumerate(zip(lengths, topics, strict=True))
    ]


runs = {"static": [], "continuous": []}
for _ in range(2):  # the faster of two, since noise only ever slows one down
    fixed_batches = rungs.make("paged", smol, num_blocks=96, max_num_seqs=4)
    each_step_anew = lab.assemble(smol, scheduler=MyScheduler, max_num_seqs=4)
    runs["static"].append(lab.serve(fixed_batches, eight(), pieces))
    runs["continuous"].append(lab.serve(each_step_anew, eight(), pieces))
best = {name: max(two, key=lambda one: lab.seen(one)["tokens/s"]) for name, two in runs.items()}
ways = lab.four_ways(best["static"], best["continuous"])
four = {way: lab.seen(served) for way, served in ways.items()}
print({name: f"{lab.num_steps(served)} steps" for name, served in best.items()})
measures_figure(four, "Streaming × batching, the mean of eight clients (measured)")

# %% [markdown] lang="en"
# One of the clients that came later, in the four ways, as its screen shows it:

# %% [markdown] lang="ko" of="0db91b5b"
# 나중에 온 클라이언트 하나의 화면을 네 가지 방식으로 봅니다.

# %% tags=["nbval-ignore-output"]
from labkit.workbook.widgets import streaming_race

lanes = {
    way: [(when - served["e"].arrival, piece) for when, piece in served["e"].pieces]
    for way, served in ways.items()
}
streaming_race(lanes, "What client e sees (measured)")

# %% [markdown] lang="en"
# **Compare.** Streaming moved one number, the first text; E2E and tokens/s are those of the same
# run, to the last digit. Batching moved all three, and would have moved them for nobody reading.
# The group's answer is supported. What the four show beyond it: streaming is worth little to a
# client whose request still waits in line. With a static batch even the streaming client `e` sees
# nothing until the longest answer before it has ended.

# %% [markdown] lang="ko" of="f262a13d"
# **비교.** 스트리밍이 움직인 것은 첫 텍스트 하나입니다. E2E와 tokens/s는 같은 실행의 것이라 끝자리까지
# 같습니다. 배칭은 셋을 모두 움직였고, 읽는 사람이 없어도 그랬을 것입니다. 그룹의 답은 맞습니다. 여기서
# 더 보이는 것은, 아직 줄에 서 있는 요청에는 스트리밍이 별 소용이 없다는 점입니다. 정적 배치에서는
# 스트리밍하는 클라이언트 `e`도 앞의 가장 긴 답이 끝날 때까지 아무것도 보지 못합니다.

# %% tags=["nbval-ignore-output"]
neither, both = four["static, at the end"], four["continuous, streamed"]
compare("06.four_ways", neither["first text, s"] / both["first text, s"], "times sooner")

# %% [markdown] lang="en"
# ## Experiment B: one worker, many requests
#
# The study group's short answer to **question 9, is one ModelWorker a serialization point?** is:
# *it can be; a long request blocks the others (head-of-line), and schedulers therefore work per
# token step.* Take it apart: what does a short request wait for, and what is left of the wait when
# the scheduler works per step?
#
# **Head of line.** A question with a long answer (24 tokens) is being served; a short one (4
# tokens) comes right after. The rung `naive` finishes one before it begins the next.
#
# **Predict.** How many times sooner does the short one get its first token with your scheduler?

# %% [markdown] lang="ko" of="2e31da20"
# ## 실험 B: 워커는 하나, 요청은 여럿
#
# **질문 9** “ModelWorker 하나는 직렬화 지점인가?”에 대한 스터디 그룹의 짧은 답은 *그럴 수 있다. 긴
# 요청이 다른 요청을 막으므로(head-of-line) 스케줄러는 토큰 단계마다 일한다* 입니다. 나누어 봅시다. 짧은
# 요청은 무엇을 기다리고, 스케줄러가 단계마다 일하면 기다림에서 무엇이 남을까요?
#
# **줄의 맨 앞.** 답이 긴 질문(24토큰)을 처리하는 중에 짧은 질문(4토큰)이 바로 뒤에 옵니다. `naive`
# 단은 하나를 끝내고 나서 다음을 시작합니다.
#
# **예측.** 여러분의 스케줄러라면 짧은 질문이 첫 토큰을 몇 배 빨리 받을까요?

# %% tags=["nbval-ignore-output"]
predict("06.head_of_line", low=1, high=100, unit="times sooner")

# %% tags=["nbval-ignore-output"]
from labkit.engine.naive import NaiveEngine


def long_then_short():
    return [
        Request("long", smol.encode_chat("Tell me about the sea."), 24, ignore_eos=True),
        Request("short", smol.encode_chat("Say hi."), 4, ignore_eos=True, arrival=step_s),
    ]


engines = {
    "naive": NaiveEngine(lab.WithoutCache(smol.model), smol.eos_token_ids),
    "continuous": lab.assemble(smol, scheduler=MyScheduler),
}
behind = {}
for name, engine in engines.items():
    served = lab.serve(engine, long_then_short())
    timed = {who: latency(one.arrival, one.token_times) for who, one in served.items()}
    behind[name] = {"TTFT of the short, s": timed["short"].ttft, "E2E of the long, s": timed["long"].e2e}
measures_figure(behind, "A short request right behind a long one (measured)")

# %% tags=["nbval-ignore-output"]
waited, waits = (behind[name]["TTFT of the short, s"] for name in ("naive", "continuous"))
compare("06.head_of_line", waited / waits, "times sooner")

# %% [markdown] lang="en"
# (The naive rung is slower for a second reason, no cache: see E2E of the long one. What matters
# here is that the short one's TTFT *contains* it.)
#
# **The stall.** Deciding per step is not enough: a step is as long as what is in it. Two chats
# generate; then comes a prompt of some 700 tokens. First on a virtual clock, where a step of n
# tokens takes 10 + n ms, so that you can check every number by hand.

# %% [markdown] lang="ko" of="114e072b"
# (`naive` 단이 느린 데에는 캐시가 없다는 이유도 있습니다. 긴 요청의 E2E를 보세요. 여기서 중요한 것은
# 짧은 요청의 TTFT가 그것을 통째로 *포함한다*는 점입니다.)
#
# **멈춤.** 단계마다 정하는 것만으로는 모자랍니다. 단계의 길이는 그 안에 든 것이 정합니다. 채팅 둘이
# 생성 중일 때 700토큰쯤 되는 프롬프트가 옵니다. 먼저 가상 시계로 봅니다. n토큰 단계가 10 + n ms
# 걸린다고 하면 모든 숫자를 손으로 확인할 수 있습니다.

# %%
def virtual(budget):
    scheduler = MyScheduler(BlockPool(96, 16, False), max_num_batched_tokens=budget)
    chats = [Request(f"chat-{i}", [1] * 20, max_tokens=30) for i in (1, 2)]
    late = Request("long", [1] * 700, max_tokens=4, arrival=100.0)
    return play(scheduler, [*chats, late], step_seconds=lambda num_tokens: 10 + num_tokens)


for budget in (1024, 128, 64):
    played = virtual(budget)
    gap = lab.longest_gap(played, ["chat-1", "chat-2"])
    ttft = lab.token_ends(played, "long")[0] - 100
    between = lab.prompt_tokens_between(played, "chat-1")
    print(f"budget {budget:4}: longest gap {gap:3.0f} ms, {between:3} prompt tokens in it, "
          f"TTFT of the long one {ttft:3.0f} ms")

# %% [markdown] lang="en"
# With a budget of 1024 the chats wait for all 700 tokens. With 64 they wait for 62 at most: one
# chunk, the two tokens of the chats beside it. That is the promise to keep: *however long a prompt,
# the gap is at most one chunk*. The price is TTFT of the long one, since each of its chunks pays
# for a step of its own.
#
# **Predict.** Now the real model and a real clock. How many times shorter is the longest gap of the
# chats with a budget of 64 than with 1024?

# %% [markdown] lang="ko" of="eb006d88"
# 예산이 1024면 채팅은 700토큰을 전부 기다립니다. 64면 많아야 62토큰입니다. 청크 하나와 그 옆의 채팅
# 토큰 둘입니다. 지켜야 할 약속은 이것입니다. *프롬프트가 아무리 길어도 간격은 청크 하나를 넘지 않는다.*
# 값은 긴 요청의 TTFT로 치릅니다. 청크마다 단계 하나의 비용을 내기 때문입니다.
#
# **예측.** 이제 진짜 모델과 진짜 시계입니다. 예산 64일 때 채팅의 가장 긴 간격은 1024일 때보다 몇 배
# 짧을까요?

# %% tags=["nbval-ignore-output"]
predict("06.stall", low=1, high=30, unit="times shorter")

# %% tags=["nbval-ignore-output"]
book = "The lighthouse keeper wrote down the wind and the ships that passed. " * 52
long_prompt = smol.encode_chat(book + "What did he write down?")
stalls, schedules = {}, {}
for budget in (1024, 128, 64):
    chats = [
        Request(f"chat-{i}", smol.encode_chat(f"Tell me about {topics[i]}."), 24, ignore_eos=True)
        for i in (1, 2)
    ]
    late = Request("long", list(long_prompt), 4, ignore_eos=True)
    engine = lab.assemble(smol, scheduler=MyScheduler, max_num_batched_tokens=budget)
    with watched(engine) as schedules[budget]:
        timed = lab.stall(engine, chats, late)
    stalls[f"budget {budget}"] = {
        "longest gap of a chat, ms": 1e3 * max(max(timed[c.request_id].itl) for c in chats),
        "TTFT of the long one, s": timed["long"].ttft,
    }
    between = lab.prompt_tokens_between(schedules[budget], "chat-1")
    print(f"budget {budget:4}: at most {between} prompt tokens between two tokens of a chat")
print(f"the long prompt has {len(long_prompt)} tokens")
measures_figure(stalls, "Two chats, then a long prompt (measured)")

# %% [markdown] lang="en"
# Before chunking, and after; the same requests:

# %% [markdown] lang="ko" of="94c4cd68"
# 청크로 나누기 전과 후, 같은 요청입니다.

# %% tags=["nbval-ignore-output"]
timeline(schedules[1024], "Budget 1024: the chats stand still (measured)")

# %% tags=["nbval-ignore-output"]
timeline(schedules[64], "Budget 64: a chunk at a time (measured)")

# %% tags=["nbval-ignore-output"]
gap_whole = stalls["budget 1024"]["longest gap of a chat, ms"]
gap_chunked = stalls["budget 64"]["longest gap of a chat, ms"]
compare("06.stall", gap_whole / gap_chunked, "times shorter")

# %% [markdown] lang="en"
# **Compare.** Between two tokens of a chat stood all 712 tokens of the prompt before chunking, and
# 62 after. (The gap shrinks by less than that ratio: every step also reads the weights.) The group's
# answer is sharpened. One worker is always a serialization point: it computes one step after the
# other. What a scheduler chooses is how much is in a step. Per request (naive), everybody waits for
# an answer; per step, for a prompt; per step *with a budget*, for a chunk.
#
# ## Experiment C: batch by tokens
#
# The study group's short answer to **question 3, is batch size 4 production batching?** is: *good
# for learning; in production total tokens, context length, KV use and memory decide, and engines
# batch by tokens.* Look at how much work "four requests" are. Four at a time, no other limit,
# against a budget of 64 tokens and as many requests as fit; tokens in each step:

# %% [markdown] lang="ko" of="4313c373"
# **비교.** 채팅의 토큰 둘 사이에 있던 것이, 청크로 나누기 전에는 프롬프트 712토큰 전부였고 나눈 뒤에는 62토큰입니다. (간격은 그 비율만큼 줄지는 않습니다. 단계마다
# 가중치도 읽기 때문입니다.) 그룹의 답이 더 정확해집니다. 워커 하나는 언제나 직렬화 지점입니다. 단계를 하나씩 차례로 계산하니까요. 스케줄러가 고르는 것은 한 단계에 얼마를
# 넣느냐입니다. 요청 단위(naive)면 모두가 답 하나를, 단계 단위면 프롬프트 하나를, *예산이 있는* 단계 단위면 청크 하나를 기다립니다.
#
# ## 실험 C: 토큰으로 묶기
#
# **질문 3** “배치 크기 4는 프로덕션 배칭인가?”에 대한 스터디 그룹의 짧은 답은 *배우기에는 좋다.
# 프로덕션에서는 전체 토큰 수, 컨텍스트 길이, KV 사용량과 메모리가 정하고, 엔진은 토큰으로 묶는다*
# 입니다. “요청 네 개”가 얼마만큼의 일인지 봅시다. 다른 제한 없이 네 개씩 묶을 때와, 예산 64토큰에
# 들어가는 만큼 받을 때, 단계마다 토큰 수입니다.

# %%
prompt_lengths = [180, 20, 24, 150, 22, 120, 18, 26]


def tokens_of_steps(**limits):
    asked = [Request(f"r{i}", [1] * n, max_tokens=6) for i, n in enumerate(prompt_lengths)]
    played = play(MyScheduler(BlockPool(96, 16, False), **limits), asked)
    return [step.num_tokens for step in played.steps]


print("four requests:", tokens_of_steps(max_num_seqs=4, max_num_batched_tokens=4096))
print("64 tokens:    ", tokens_of_steps(max_num_seqs=64, max_num_batched_tokens=64))

# %% [markdown] lang="en"
# A step of "four requests" is anything from 4 tokens to several hundred. A step of 64 tokens is 64
# tokens, as long as there is work.
#
# **Predict.** The same eight requests on the real model, budgets of 16, 64 and 512 tokens. How many
# times more tokens/s (prompt and output) does 512 bring than 16? (The first comes a step before the
# others, so that somebody is there to be kept waiting.)

# %% [markdown] lang="ko" of="3764d00d"
# “요청 네 개”짜리 단계는 4토큰일 수도 수백 토큰일 수도 있습니다. 64토큰짜리 단계는 할 일이 있는 한
# 64토큰입니다.
#
# **예측.** 같은 요청 여덟 개를 진짜 모델에서 예산 16, 64, 512토큰으로 돌립니다. 512는 16보다 몇 배
# 많은 tokens/s(프롬프트와 출력)를 낼까요? (첫 요청만 한 단계 먼저 옵니다. 기다리게 될 누군가가
# 있어야 하니까요.)

# %% tags=["nbval-ignore-output"]
predict("06.budget", low=1, high=10, unit="times as many")

# %% tags=["nbval-ignore-output"]
swept = {}
for budget in (16, 64, 512):
    asked = [
        Request(f"r{i}", long_prompt[:n], 6, ignore_eos=True, arrival=step_s if i else 0.0)
        for i, n in enumerate(prompt_lengths)
    ]
    engine = lab.assemble(smol, scheduler=MyScheduler, max_num_batched_tokens=budget)
    served = lab.serve(engine, asked)
    timed = [latency(one.arrival, one.token_times) for one in served.values()]
    seconds = lab.span_of(served)
    swept[f"budget {budget}"] = {
        "tokens/s, prompt + output": (sum(prompt_lengths) + 6 * len(timed)) / seconds,
        "longest gap, ms": 1e3 * max(max(one.itl) for one in timed),
        "mean TTFT, s": sum(one.ttft for one in timed) / len(timed),
    }
measures_figure(swept, "The same eight requests, three budgets (measured)")

# %% tags=["nbval-ignore-output"]
many, few = (swept[f"budget {b}"]["tokens/s, prompt + output"] for b in (512, 16))
compare("06.budget", many / few, "times as many")

# %% [markdown] lang="en"
# **Compare.** A small budget reads all weights of the model for few tokens. Past the ridge of your
# roofline (notebook 00) each further token costs its own time: tokens/s grow more slowly than the
# budget, and the longest gap grows with it. So the budget is chosen between these two, by tokens,
# and *how many requests* share it is left open. The group's answer is supported, and has numbers:
# the tokens/s and the longest gap at each budget.
#
# ## What breaks
#
# Four faults, each on a small input, first broken, then with your part. `broken(id, mistake)` is
# labkit's code with one of the known mistakes of the exercise in it.
#
# **1. The row mix-up.** An aborted request is skipped *before* its result is taken:
#
# ```python
# for chunk in plan.chunks.values():
#     if chunk.request.state is State.FINISHED:
#         continue                       # its result is still there, and goes to the next one
#     result = next(results) if chunk.samples else None
# ```

# %% [markdown] lang="ko" of="d44d75b2"
# **비교.** 예산이 작으면 적은 토큰을 위해 모델 가중치를 전부 읽습니다. 루프라인의 두 지붕이 만나는
# 점(노트북 00)을 지나면 토큰마다 제 시간이 듭니다. tokens/s는 예산보다 느리게 늘고, 가장 긴 간격은
# 예산과 함께 늘어납니다. 그래서 예산은 이 둘 사이에서 토큰으로 정하고, *요청 몇 개*가 나눠 쓸지는 열어
# 둡니다. 그룹의 답은 맞고, 숫자도 생겼습니다. 예산마다의 tokens/s와 가장 긴 간격입니다.
#
# ## 무엇이 깨지는가
#
# 결함 넷을 작은 입력에서, 먼저 깨진 채로, 그다음 여러분의 코드로 봅니다. `broken(id, mistake)`은
# 그 실습의 알려진 실수 하나를 넣은 labkit 코드입니다.
#
# **1. 행이 뒤바뀐다.** 취소된 요청을 결과를 꺼내기 *전에* 건너뜁니다.
#
# ```python
# for chunk in plan.chunks.values():
#     if chunk.request.state is State.FINISHED:
#         continue                       # 결과가 그대로 남아 다음 요청에 간다
#     result = next(results) if chunk.samples else None
# ```

# %%
print("broken:", talk(broken("06.2", "abort_shifts_rows"), scripts, abort=(3, "ann")))
print("mended:", talk(MyScheduler, scripts, abort=(3, "ann")))

# %% [markdown] lang="en"
# Bob reads a word of Ann's answer. With two users and a private question this is a data leak, and
# no test that serves one request at a time can see it. It is an old fault in a new place: in March
# 2023 ChatGPT showed people the chat titles of others, since a Redis client left the reply to a
# cancelled request in line, and the next request took it for its own.
#
# **2. A token for somebody who has left.** Without the check of the state, the aborted request
# advances and is forgotten a second time. One cancelled answer ends the engine for everybody.

# %% [markdown] lang="ko" of="965999cf"
# bob이 ann의 답 한 단어를 읽습니다. 사적인 질문이라면 정보 유출이고, 요청을 하나씩 처리하는 테스트로는
# 볼 수 없습니다. 오래된 결함이 새 자리에 나타난 것입니다. 2023년 3월 ChatGPT는 남의 대화 제목을 보여
# 주었습니다. Redis 클라이언트가 취소된 요청의 응답을 줄에 남겨 두었고, 다음 요청이 그것을 자기 것으로
# 받았기 때문입니다.
#
# **2. 떠난 사람에게 주는 토큰.** 상태를 확인하지 않으면 취소된 요청이 나아가고, 장부에서 두 번 지워집니다. 답
# 하나를 취소했더니 모두의 엔진이 끝납니다.

# %%
print("broken:", talk(broken("06.2", "aborted_gets_a_token"), scripts, abort=(3, "ann")))
print("mended:", talk(MyScheduler, scripts, abort=(3, "ann")))

# %% [markdown] lang="en"
# **3. A seed that depends on the crowd.** One generator for the batch, seeded by its first
# request. Then the row as the seed. The same request, alone and as the second of two:

# %% [markdown] lang="ko" of="80eb5b4b"
# **3. 옆에 누가 있느냐에 달린 seed.** 배치에 생성기가 하나이고 첫 요청의 seed로 시작합니다. 그다음은
# 행 번호를 seed로 쓴 것입니다. 같은 요청을 혼자, 그리고 둘 중 둘째로 돌립니다.

# %%
import torch

tokens = torch.full((1, 1000), 0.001, device=device).log()  # a thousand tokens, all equally likely


def request_with(seed):
    return Request("r", [1], sampling=SamplingParams(temperature=1.0), seed=seed)


mine, other = request_with(7), request_with(8)
for name, part in (
    ("one generator", broken("06.5", "one_generator")),
    ("row as seed", broken("06.5", "row_for_a_seed")),
    ("mended", draw),
):
    alone = part(tokens.clone(), [mine]).tolist()[0]
    second = part(tokens.repeat(2, 1), [other, mine]).tolist()[1]
    print(f"{name:14} the same alone and in a batch: {alone == second}")

# %% [markdown] lang="en"
# **4. Decodes starve.** Prompts under way before those that generate, or steps that are either
# prefill or decode: the default of vLLM's V0 scheduler. The chat of the experiment, budget 64,
# steps between two of its tokens:

# %% [markdown] lang="ko" of="676c6574"
# **4. 디코드가 굶는다.** 진행 중인 프롬프트를 생성 중인 요청보다 먼저 처리하거나, 단계가 프리필 아니면
# 디코드입니다. vLLM V0 스케줄러의 기본 동작이었습니다. 실험의 채팅을 예산 64로 돌려 토큰 둘 사이의 단계
# 수를 셉니다.

# %%
for name, scheduler_class in (
    ("prompts first", broken("06.1", "prompts_first")),
    ("one phase a step", broken("06.1", "one_phase_a_step")),
    ("mended", MyScheduler),
):
    scheduler = scheduler_class(BlockPool(96, 16, False), max_num_batched_tokens=64)
    asked = [Request("chat", [1] * 20, max_tokens=30)]
    asked += [Request("long", [1] * 700, max_tokens=4, arrival=5.0)]
    gap = lab.longest_gap(play(scheduler, asked), ["chat"])
    print(f"{name:17} longest gap: {gap:.0f} steps")

# %% [markdown] lang="en"
# Note the first two: chunks alone do not help. They bound a step, and the order bounds how many
# steps one waits.
#
# ## Your answers
#
# **7. Are token streaming and continuous batching the same thing?** No. Streaming changed the first
# text and nothing else; batching changed E2E and tokens/s for everybody, streamed or not.
#
# **9. Is one ModelWorker a serialization point?** Yes, and the unit is yours to choose: an answer, a
# prompt (712 tokens here), or a chunk (62). With a budget the longest gap is that of one step.
#
# **3. Is batch size 4 production batching?** No: four requests are 4 tokens or several hundred. The
# budget counts tokens, and the number of requests follows from it and from the memory.

# %% [markdown] lang="ko" of="9a299123"
# 앞의 둘을 보세요. 청크만으로는 도움이 되지 않습니다. 청크는 단계의 길이를 제한하고, 몇 단계를
# 기다리는지는 순서가 제한합니다.
#
# ## 여러분의 답
#
# **7. 토큰 스트리밍과 연속 배칭은 같은 것인가?** 아닙니다. 스트리밍은 첫 텍스트만 바꿨습니다. 배칭은
# 스트리밍하든 아니든 모두의 E2E와 tokens/s를 바꿨습니다.
#
# **9. ModelWorker 하나는 직렬화 지점인가?** 그렇습니다. 단위는 고를 수 있습니다. 답 하나, 프롬프트
# 하나(여기서는 712토큰), 또는 청크 하나(62토큰). 예산이 있으면 가장 긴 간격은 한 단계입니다.
#
# **3. 배치 크기 4는 프로덕션 배칭인가?** 아닙니다. 요청 네 개는 4토큰일 수도 수백 토큰일 수도
# 있습니다. 예산은 토큰을 세고, 요청 수는 예산과 메모리에서 따라 나옵니다.

# %% tags=["nbval-ignore-output"]
answer(
    7,
    steps_static=lab.num_steps(best["static"]),
    steps_continuous=lab.num_steps(best["continuous"]),
    **{
        f"{measure} {way}".replace("/s", "_per_s").replace(",", "").replace(" ", "_"): value
        for way, values in four.items()
        for measure, value in values.items()
    },
)

# %% tags=["nbval-ignore-output"]
answer(
    9,
    ttft_of_short_behind_long_naive_s=waited,
    ttft_of_short_behind_long_continuous_s=waits,
    longest_gap_budget_1024_ms=gap_whole,
    longest_gap_budget_64_ms=gap_chunked,
    ttft_of_long_prompt_budget_1024_s=stalls["budget 1024"]["TTFT of the long one, s"],
    ttft_of_long_prompt_budget_64_s=stalls["budget 64"]["TTFT of the long one, s"],
)

# %% tags=["nbval-ignore-output"]
fewest, *_, most = sorted(tokens_of_steps(max_num_seqs=4, max_num_batched_tokens=4096))
answer(
    3,
    fewest_tokens_in_a_step_of_4_requests=fewest,
    most_tokens_in_a_step_of_4_requests=most,
    tokens_per_s_budget_16=few,
    tokens_per_s_budget_512=many,
    longest_gap_budget_16_ms=swept["budget 16"]["longest gap, ms"],
    longest_gap_budget_512_ms=swept["budget 512"]["longest gap, ms"],
)

# %% [markdown] lang="en"
# ## The ladder
#
# Every rung so far on one small workload. With parts that passed, this rung runs on them too. All
# eight requests come at once and the pool holds them all, so `paged` makes one batch of them and
# nobody waits: there is little for the new rung to win here. Experiment A is where it wins.

# %% [markdown] lang="ko" of="6181089b"
# ## 사다리
#
# 지금까지의 모든 단을 작은 작업 하나로 잽니다. 통과한 코드가 있으면 이 단은 그 코드로도 돕니다. 요청 여덟이
# 한꺼번에 오고 풀에 모두 들어가므로 `paged`도 배치 하나로 만들어 아무도 기다리지 않습니다. 새 단이 여기서
# 얻을 것은 거의 없습니다. 이기는 곳은 실험 A입니다.

# %% tags=["nbval-ignore-output"]
from labkit.workbook.ladder import ladder

ladder("continuous")

# %% [markdown] lang="en"
# Serve with it: `python3 -m labkit serve --rung continuous --mine` in a terminal starts the whole
# server, OpenAI's API and a page with a chat, on your scheduler, batch and sampler. The banner and
# `GET /v1/requests` say which parts are yours. Open the page twice, paste a long text into one
# chat, and watch the other.
#
# ## In vLLM and Triton Inference Server
#
# - **The scheduler** is `Scheduler.schedule()` in vLLM's `vllm/v1/core/sched/scheduler.py`; its
#   opening comment says that there is neither a decoding nor a prefill phase. `update_from_output()`
#   is your `commit`. Running requests are visited in one list, in order of admission; decodes come
#   first since they were admitted first. It also handles speculative tokens, LoRA, encoder inputs
#   and remote KV caches, which this one doesn't.
# - **The budget** is `max_num_batched_tokens`, with `max_num_seqs` beside it, under the same names.
#   Chunked prefill is on by default in V1; `long_prefill_token_threshold` caps the chunk of one
#   request, which this scheduler has not.
# - **The flat batch** is made by `GPUModelRunner._prepare_inputs()`
#   (`vllm/v1/worker/gpu_model_runner.py`): `query_start_loc`, `slot_mapping`, `logits_indices`.
# - **Sampling**: vLLM keeps a `torch.Generator` for each seeded request; here a pure function of
#   seed and place stands in, so a preempted request needs nothing restored.
# - **Triton Inference Server** (the server, not the kernel language) has a *dynamic batcher* that
#   gathers whole requests for some microseconds: a static batch. For language models it hands the
#   requests to a backend that batches by itself: the vLLM backend, or TensorRT-LLM's, where
#   continuous batching is called *inflight batching* and chunked prefill *chunked context*.
#
# Next: notebook 07, the whole life of a request, and the process that it lives in.

# %% [markdown] lang="ko" of="c637db66"
# 이것으로 서빙해 보세요. 터미널에서 `python3 -m labkit serve --rung continuous --mine`을 실행하면
# 여러분의 스케줄러, 배치, 샘플러 위에서 OpenAI API와 채팅 페이지를 갖춘 서버 전체가 뜹니다. 배너와
# `GET /v1/requests`가 어느 부분이 직접 만든 코드인지 알려 줍니다. 페이지를 두 번 열고, 한쪽 채팅에 긴 글을
# 붙여 넣고 다른 쪽을 지켜보세요.
#
# ## vLLM과 Triton Inference Server에서는
#
# - **스케줄러**는 vLLM `vllm/v1/core/sched/scheduler.py`의 `Scheduler.schedule()`입니다. 첫 주석에
#   디코딩 단계도 프리필 단계도 없다고 적혀 있습니다. `update_from_output()`이 여러분의 `commit`입니다.
#   실행 중인 요청을 목록 하나에서 받은 순서대로 방문합니다. 먼저 받은 요청이 먼저 생성하므로 디코드가
#   앞에 옵니다. 여기에 없는 투기적 토큰, LoRA, 인코더 입력, 원격 KV 캐시도 다룹니다.
# - **예산**은 `max_num_batched_tokens`이고 `max_num_seqs`와 함께 이름이 같습니다. V1에서는 chunked
#   prefill이 기본으로 켜져 있습니다. 요청 하나의 청크를 제한하는 `long_prefill_token_threshold`는
#   여기에 없습니다.
# - **한 줄 배치**는 `GPUModelRunner._prepare_inputs()`(`vllm/v1/worker/gpu_model_runner.py`)가
#   만듭니다. `query_start_loc`, `slot_mapping`, `logits_indices`입니다.
# - **샘플링**: vLLM은 seed를 준 요청마다 `torch.Generator`를 둡니다. 여기서는 seed와 위치의 순수 함수가
#   대신하므로 선점된 요청에 되살릴 것이 없습니다.
# - **Triton Inference Server**(커널 언어가 아니라 서버)에는 요청 전체를 몇 마이크로초 동안 모으는
#   *dynamic batcher*가 있습니다. 정적 배치입니다. 언어 모델이면 스스로 배치하는 백엔드에 요청을
#   넘깁니다. vLLM 백엔드나 TensorRT-LLM 백엔드이고, 후자에서는 연속 배칭을 *inflight batching*, chunked
#   prefill을 *chunked context*라고 부릅니다.
#
# 다음은 노트북 07, 요청의 일생과 요청이 사는 프로세스입니다.

# %% tags=["nbval-ignore-output"]
progress()
