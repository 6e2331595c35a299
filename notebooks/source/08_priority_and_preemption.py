# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] lang="en"
# # 08 · Priority and preemption
#
# In 2025 a vLLM server started with `--scheduling-policy priority` could die of a full memory. The
# scheduler had planned a token for a request. Then a more urgent one needed its blocks, so it was
# preempted: blocks gone, out of the list of running ones. But its token stayed in the plan of that
# step. An assertion compared the two counts and ended the engine, with everybody's streams
# (vLLM issue 23347, mended in pull request 23713).
#
# Taking something away from a running request is easy. Taking away *all* of it, in every book that
# mentions it, is what this notebook is about.
#
# **After this notebook you can**
#
# - preempt a request, by recompute and by swap, so that its text doesn't change;
# - decide who may take from whom, and leave everybody alone where it would not help;
# - write policies: priority, weighted fair, earliest deadline;
# - answer two of the ten questions with numbers of your own machine:
#   **9. Is one ModelWorker a serialization point?** and
#   **10. When is priority scheduling needed?**

# %% [markdown] lang="ko" of="a962a75c"
# # 08 · 우선순위와 선점
#
# 2025년, `--scheduling-policy priority`로 시작한 vLLM 서버는 메모리가 차면 죽을 수 있었습니다.
# 스케줄러가 어떤 요청에 토큰 하나를 계획해 둔 뒤, 더 급한 요청에 그 요청의 블록이 필요해졌습니다.
# 그래서 선점(preemption)했습니다. 블록을 빼앗고 실행 목록에서도 뺐지만, 그 단계의 계획에는 토큰이
# 남아 있었습니다. 두 수를 비교하던 assert가 엔진을 끝냈고, 모두의 스트림이 함께 끊겼습니다
# (vLLM 이슈 23347, PR 23713에서 수정).
#
# 실행 중인 요청에서 무언가를 빼앗기는 쉽습니다. 그 요청을 적어 둔 장부마다 *전부* 빼앗는 것이 이
# 노트북의 주제입니다.
#
# **이 노트북을 마치면**
#
# - 텍스트가 달라지지 않게, 재계산(recompute)과 스왑(swap)으로 요청을 선점할 수 있습니다.
# - 누가 누구에게서 빼앗아도 되는지 정하고, 도움이 안 되면 아무도 건드리지 않게 할 수 있습니다.
# - 우선순위, 가중 공정(weighted fair), 가장 이른 마감(deadline) 정책을 작성할 수 있습니다.
# - 열 가지 질문 중 두 개에 직접 잰 숫자로 답할 수 있습니다.
#   **9. ModelWorker 하나는 직렬화 지점인가?** **10. 우선순위 스케줄링은 언제 필요한가?**

# %% header minutes=12

# %% [markdown] lang="en"
# ## If you start here: three minutes
#
# Notebooks 04 and 06 built what this one stands on. In each step the scheduler hands out two
# things: a *budget* of tokens, and *blocks* of the KV cache, 16 tokens each.
#
# ```
#  requests → policy: who waits, in which order
#                │ peek                        ▲ push(first=True)
#                ▼                             │
#  Scheduler.plan(now): those that run, then those admitted; _preempt takes a place away
#                │ StepPlan: chunks {id: Chunk(start, num_tokens)}, budget left,
#                ▼           swap_out / swap_in [(from, to), …], preempted [Request, …]
#  engine: copy blocks → FlatBatch [T] → logits [R, vocab] → sample
#                ▼
#  Scheduler.commit: a token for each; whoever ends gives its blocks back
# ```
#
# - `request.num_computed_tokens`: keys and values of so many tokens are in the cache;
#   `request.block_table` names the blocks they lie in. A request that generates has one known
#   token that isn't computed yet.
# - `books` (of class `Books`) knows who holds which blocks of the `pool` and of the `host`'s memory.
# - A block may have several holders, counted in `pool.ref_counts`: a shared prefix.
# - TTFT runs from arrival to the first token (01); p99 is the value that 99 of 100 stay below. An
#   SLO is the bound that is promised, *goodput* the requests per second that keep theirs.
#
# `use(...)` below supplies every earlier part, yours where it passed and labkit's where not.

# %% [markdown] lang="ko" of="f86f058f"
# ## 여기서 시작한다면: 3분 요약
#
# 노트북 04와 06에서 이 노트북의 바탕을 만들었습니다. 스케줄러는 단계마다 두 가지를 나누어 줍니다.
# 토큰 *예산*(budget)과, 16토큰씩 담는 KV 캐시 *블록*입니다.
#
# ```
#  requests → policy: 누가 어떤 순서로 기다리는가
#                │ peek                        ▲ push(first=True)
#                ▼                             │
#  Scheduler.plan(now): 실행 중인 요청, 그다음 새로 들이는 요청. _preempt가 자리를 빼앗음
#                │ StepPlan: chunks {id: Chunk(start, num_tokens)}, 남은 budget,
#                ▼           swap_out / swap_in [(from, to), …], preempted [Request, …]
#  engine: 블록 복사 → FlatBatch [T] → logits [R, vocab] → 샘플링
#                ▼
#  Scheduler.commit: 요청마다 토큰 하나. 끝난 요청은 블록을 돌려줌
# ```
#
# - `request.num_computed_tokens`: 이만큼의 토큰의 키와 값이 캐시에 있습니다. 그것이 어느 블록에
#   있는지는 `request.block_table`이 말합니다. 생성 중인 요청에는 아직 계산하지 않은 토큰이 하나
#   있습니다.
# - `books`(`Books` 클래스)는 누가 `pool`의 블록과 `host` 메모리의 블록을 가졌는지 압니다.
# - 블록 하나를 여러 요청이 가질 수 있고, 그 수가 `pool.ref_counts`에 있습니다(공유 접두사).
# - TTFT는 도착에서 첫 토큰까지(01), p99는 100개 중 99개가 넘지 않는 값입니다. SLO는 약속한 한도이고,
#   *goodput*은 자기 SLO를 지킨 요청이 초당 몇 개인지입니다.
#
# 아래의 `use(...)`가 앞에서 만든 코드를 모두 제공합니다. 통과한 것은 여러분의 것, 나머지는 labkit의
# 것입니다.

# %% tags=["nbval-ignore-output"]
from labkit.model import best_device, load_decoder
from labkit.rungs import bytes_of_block

device = best_device()
smol = load_decoder("smollm2-135m", device=device)
kv_bytes = bytes_of_block(smol.model, block_size=16) // 16
print(f"{smol.name} on {device}; the keys and values of a token: {kv_bytes:,} bytes")

# %% [markdown] lang="en"
# ## A policy is one small class
#
# The scheduler asks four questions and decides none of them itself: who is next (`peek`), in what
# order do the running ones get their tokens (`in_order`), who gives way when blocks run out
# (`victim`), and may this waiting request take from that running one (`may_preempt`). First come,
# first served needs one line for each; two of them are shown below the class.

# %% [markdown] lang="ko" of="25a5028a"
# ## 정책은 작은 클래스 하나
#
# 스케줄러는 네 가지를 묻고, 어느 것도 스스로 정하지 않습니다. 다음은 누구인가(`peek`), 실행 중인
# 요청은 어떤 순서로 토큰을 받는가(`in_order`), 블록이 모자라면 누가 비키는가(`victim`), 기다리는 이
# 요청이 실행 중인 저 요청에게서 빼앗아도 되는가(`may_preempt`). 선착순(FCFS)은 각각 한 줄이면 되고,
# 그중 둘을 클래스 아래에 보입니다.

# %% show="labkit.engine.policies.fcfs:FCFS"

# %% show="labkit.engine.policies.fcfs:FCFS.victim"

# %% show="labkit.engine.policies.fcfs:FCFS.may_preempt"

# %% [markdown] lang="en"
# Priority differs in two answers. `InOrder` keeps the line by a key (the smallest first, of equal
# keys the one that came first), so what is left to write is this. Lower numbers are more urgent, as
# in vLLM, and they may be negative.

# %% [markdown] lang="ko" of="58f0e06f"
# 우선순위 정책은 두 답만 다릅니다. `InOrder`가 키 순서로 줄을 세워 주므로(작은 것 먼저, 같으면 먼저
# 온 것 먼저), 쓸 것은 이것뿐입니다. vLLM처럼 숫자가 작을수록 급하고, 음수도 됩니다.

# %%
from labkit.engine.policies import InOrder


class MostUrgentFirst(InOrder):
    def key(self, request):
        return request.priority

    def may_preempt(self, waiting, running):
        return waiting.priority < running.priority


# %% [markdown] lang="en"
# `play` runs a scheduler on a virtual clock, a second a step, without a model: the same schedule on
# every machine. One slot; a batch request (priority 5) runs, then chat (0) comes, then an alarm
# (−7) and another chat at once. (`labkit`'s own `Priority` is this class plus aging, for which see below.)

# %% [markdown] lang="ko" of="b5d1ec0f"
# `play`는 모델 없이 가상 시계로, 한 단계에 1초씩 스케줄러를 돌립니다. 어느 장비에서나 같은 스케줄이
# 나옵니다. 자리는 하나입니다. batch(우선순위 5)가 실행되고, chat(0)이 온 다음 alarm(−7)과
# 또 다른 chat이 함께 옵니다. (labkit의 `Priority`는 이 클래스에 에이징(aging)을 더한 것이며 뒤에서 다룹니다.)

# %%
from labkit.engine.blocks import BlockPool
from labkit.engine.request import Request
from labkit.engine.scheduler import Scheduler
from labkit.measure.experiments.priorities import tell
from labkit.measure.schedule import play


def small_scheduler(scheduler, policy, num_blocks=16, slots=1, **options):
    pool = BlockPool(num_blocks, block_size=4, prefix_caching=False)
    return scheduler(pool, max_num_seqs=slots, policy=policy, **options)


def four_requests():
    return [
        Request("batch", [1] * 4, max_tokens=4, priority=5),
        Request("chat", [2] * 4, max_tokens=2, priority=0, arrival=1.0),
        Request("alarm", [3] * 4, max_tokens=1, priority=-7, arrival=2.0),
        Request("chat-2", [4] * 4, max_tokens=2, priority=0, arrival=2.0),
    ]


tell(play(small_scheduler(Scheduler, MostUrgentFirst()), four_requests()))

# %% [markdown] lang="en"
# Look at step 6: batch comes back with 5 tokens, its 4 of prompt and the one it had said. They are
# computed again as one prompt, and it goes on where it was. And the second chat request did not
# take the slot from the first: equals leave each other alone.
#
# ## Taking a place away
#
# **Why.** Blocks are taken as answers grow, so the pool can run full in the middle of a step. Then
# somebody must go, and *this step's* plan may mention it already.
#
# **Shapes and invariants.** The plan's chunks and `plan.budget` add up to the budget that the step
# began with. A request is in `running`, or in the policy's line, never in both. A waiting request
# holds no block of the pool; `num_computed_tokens` is 0, or its blocks are on the host. The victim
# had its turn already, so it goes to the *head* of the line (`push(victim, first=True)`) and keeps
# what it has said. It is `PREEMPTED`, counts that (`num_preemptions`), and is in `plan.preempted`.

# %% [markdown] lang="ko" of="539c9f75"
# 6단계를 보세요. batch는 5토큰으로 돌아옵니다. 프롬프트 4개와 이미 말한 1개입니다. 하나의
# 프롬프트처럼 다시 계산하고, 멈춘 곳에서 이어 갑니다. 두 번째 chat은 첫 번째의 자리를 빼앗지
# 않았습니다. 같은 순위끼리는 건드리지 않습니다.
#
# ## 자리 빼앗기
#
# **왜.** 답이 길어지는 만큼 블록을 잡으므로, 단계 중간에 풀이 가득 찰 수 있습니다. 그러면 누군가
# 나가야 하는데, *이번 단계의* 계획에 그 요청이 이미 들어 있을 수 있습니다.
#
# **모양과 불변 조건.** 계획의 청크와 `plan.budget`을 더하면 단계를 시작할 때의 예산이 됩니다. 요청은
# `running` 아니면 정책의 줄에 있고, 둘 다에 있지 않습니다. 기다리는 요청은 풀의 블록을 갖지 않으며,
# `num_computed_tokens`는 0이거나 그 블록이 호스트에 있습니다. 희생자(victim)는 이미 차례를 받았던
# 요청이므로 줄의 *맨 앞*으로 가고(`push(victim, first=True)`), 말한 것은 그대로 갖습니다. 상태는
# `PREEMPTED`가 되고, 횟수(`num_preemptions`)를 세고, `plan.preempted`에 적힙니다.

# %% show="labkit.engine.plan:StepPlan"

# %% [markdown] lang="en"
# What becomes of the keys and values is a strategy of its own: dropped and computed again, or
# copied to the host's memory and back. vLLM's paper (Kwon et al., SOSP 2023, section 4.5) has both.

# %% [markdown] lang="ko" of="5ff2a7e3"
# 키와 값을 어떻게 할지는 별도의 전략입니다. 버리고 다시 계산하거나, 호스트 메모리로 복사했다가
# 되가져옵니다. vLLM 논문(Kwon 외, SOSP 2023, 4.5절)에 둘 다 있습니다.

# %% show="labkit.engine.policies.preemption:Cheaper"

# %% show="labkit.engine.policies.preemption:Cheaper.swaps"

# %% [markdown] lang="en"
# Your method has at hand: `plan`; `self.running` (id → request); `self.policy`;
# `self.books.can_swap_out(plan, victim)`, `.swap_out(plan, victim)`, `.release(victim)`;
# `self.preemption.swaps(victim, self.pace)`.

# %% [markdown] lang="ko" of="df4a2e45"
# 이 메서드에서 쓸 수 있는 것: `plan`, `self.running`(id → 요청), `self.policy`,
# `self.books.can_swap_out(plan, victim)`, `.swap_out(plan, victim)`, `.release(victim)`,
# `self.preemption.swaps(victim, self.pace)`.

# %% exercise="08.1"

# %% tags=["nbval-ignore-output"]
Scheduler = use("08.1")

# %% [markdown] lang="en"
# At work: a pool of 6 blocks of 4 tokens, a budget of 8. In step 2 batch has its token in the plan
# when the agent's prompt needs two blocks more. The token is taken back with the blocks.

# %% [markdown] lang="ko" of="f2a3ffb3"
# 동작을 봅시다. 4토큰짜리 블록 6개, 예산 8입니다. 2단계에서 batch의 토큰이 이미 계획에 있는데
# 에이전트의 프롬프트에 블록 두 개가 더 필요해집니다. 블록과 함께 토큰도 되돌립니다.


# %%
def batch_and_agent():
    batch = Request("batch", [1] * 7, max_tokens=3, priority=5)
    return [batch, Request("agent", [2] * 16, max_tokens=2, priority=1, arrival=1.0)]


tight = {"num_blocks": 6, "slots": 8, "max_num_batched_tokens": 8}
tell(play(small_scheduler(Scheduler, MostUrgentFirst(), **tight), batch_and_agent()))

# %% [markdown] lang="en"
# ## Who may take from whom
#
# **Why.** An urgent request that arrives finds no slot, or too few blocks. It may take from those
# that are *strictly* less urgent. With "less or equal" two equal requests take the slot from each
# other for ever, and each computes its prompt again every time: ping-pong.
#
# And taking must be *enough*. Preempting a batch request that holds one block, for a prompt that
# needs two, throws its work away and helps nobody. So count first: what would all possible victims
# free together? A block that two victims share is one block. A block that somebody else holds as
# well is not freed at all.
#
# At hand: `self.books.find_computed(request, self.running)` → `(shared, num_cached)`;
# `self.books.missing(request, shared, num_cached)`, how many blocks too few are free (the `shared`
# ones count as there); `self.policy.may_preempt(request, running)` and `.victim(victims)`;
# `self.pool.ref_counts[block]`; your `_preempt`. With blocks and a slot free, return what
# `find_computed` gave.

# %% [markdown] lang="ko" of="4e4e21e5"
# ## 누가 누구에게서 빼앗아도 되는가
#
# **왜.** 급한 요청이 왔는데 자리가 없거나 블록이 모자랍니다. *확실히* 덜 급한 요청에게서만 빼앗을 수
# 있습니다. "작거나 같다"로 하면 같은 순위의 두 요청이 서로 자리를 영원히 빼앗고, 그때마다 프롬프트를
# 다시 계산합니다. 핑퐁입니다.
#
# 빼앗는 것은 *충분해야* 합니다. 블록 두 개가 필요한 프롬프트를 위해 블록 하나를 가진 batch를
# 선점하면, 한 일만 버리고 아무에게도 도움이 안 됩니다. 그러니 먼저 셉니다. 가능한 희생자를
# 모두 합치면 블록이 몇 개 비는가? 두 희생자가 공유하는 블록은 하나입니다. 다른 요청도 가지고 있는
# 블록은 전혀 비지 않습니다.
#
# 쓸 수 있는 것: `self.books.find_computed(request, self.running)` → `(shared, num_cached)`,
# `self.books.missing(request, shared, num_cached)`(모자란 블록 수. `shared`는 있는 것으로 셈),
# `self.policy.may_preempt(request, running)`과 `.victim(victims)`, `self.pool.ref_counts[block]`,
# 여러분의 `_preempt`. 블록과 자리가 있으면 `find_computed`가 준 것을 돌려줍니다.

# %% exercise="08.2"

# %% tags=["nbval-ignore-output"]
Scheduler = use("08.2")

# %% [markdown] lang="en"
# At work: 4 blocks. `other` (priority 0) holds three of them and may not be touched, batch (5)
# holds one. `long` (1) needs two: nobody is preempted, and it waits.

# %% [markdown] lang="ko" of="6bf35557"
# 동작을 봅시다. 블록은 4개입니다. `other`(우선순위 0)가 셋을 가졌고 건드릴 수 없습니다. batch(5)는
# 하나를 가졌습니다. `long`(1)에는 둘이 필요합니다. 아무도 선점하지 않고 기다립니다.

# %%
not_enough = [
    Request("other", [1] * 9, max_tokens=3, priority=0),
    Request("batch", [2] * 2, max_tokens=3, priority=5),
    Request("long", [3] * 8, max_tokens=2, priority=1, arrival=1.0),
]
tell(play(small_scheduler(Scheduler, MostUrgentFirst(), num_blocks=4, slots=8), not_enough))

# %% [markdown] lang="en"
# ## Out to the host
#
# **Why.** What is computed was paid for. If the host has room, its blocks can be copied there, and
# back when the request returns: bytes instead of tokens.
#
# **Shapes and invariants.** `plan.swap_out` is a list of pairs (device block, host block). The
# engine makes these copies before the step computes anything, so the blocks may be freed, and
# given to somebody else, in the same plan. `host_blocks` hold `num_computed_tokens` tokens, the
# last block perhaps partly. The pool gets the *whole* table back, and `num_swaps` counts.
#
# At hand: `self.pool.blocks_for(num_tokens)` → how many blocks; `self.host.allocate(n)` → their
# numbers; `self.pool.free(blocks)`.

# %% [markdown] lang="ko" of="b3795cca"
# ## 호스트로 내보내기
#
# **왜.** 계산한 것에는 이미 값을 치렀습니다. 호스트에 자리가 있으면 블록을 그곳에 복사해 두었다가
# 요청이 돌아올 때 되가져올 수 있습니다. 토큰 대신 바이트로 값을 치릅니다.
#
# **모양과 불변 조건.** `plan.swap_out`은 (장치 블록, 호스트 블록) 쌍의 리스트입니다. 엔진은 단계가
# 무엇을 계산하기 전에 이 복사부터 합니다. 그래서 같은 계획 안에서 블록을 비우고 다른 요청에 주어도
# 됩니다. `host_blocks`에는 `num_computed_tokens`개의 토큰이 있고, 마지막 블록은 일부만 찰 수 있습니다.
# 풀은 테이블 *전체*를 돌려받고, `num_swaps`가 횟수를 셉니다.
#
# 쓸 수 있는 것: `self.pool.blocks_for(토큰 수)` → 블록 수, `self.host.allocate(n)` → 블록 번호들,
# `self.pool.free(blocks)`.

# %% exercise="08.3"

# %% tags=["nbval-ignore-output"]
Books = use("08.3")

# %% [markdown] lang="en"
# At work: a request has computed 6 tokens, and holds a third block for a chunk that was taken back.
# Two blocks are copied, all three are free.

# %% [markdown] lang="ko" of="4e4a1ddd"
# 동작을 봅시다. 요청은 6토큰을 계산했고, 되돌린 청크를 위해 잡아 둔 세 번째 블록이 있습니다. 블록 둘을
# 복사하고 셋 모두 비웁니다.

# %%
from labkit.engine.plan import StepPlan

books = Books(BlockPool(8, 4, False), host=BlockPool(8, 4, False))
victim = Request("victim", [1] * 9, num_computed_tokens=6)
victim.block_table = books.pool.allocate(3)
plan = StepPlan(budget=8)
books.swap_out(plan, victim)
print("copies (device, host):", plan.swap_out, "  on the host:", victim.host_blocks)
print("blocks in use:", books.pool.num_used, "  computed tokens:", victim.num_computed_tokens)

# %% [markdown] lang="en"
# ## Experiment A: preempted, and not a word changed
#
# Now with the real model. Three batch requests fill a pool of 14 blocks; two chat requests come in
# steps 6 and 16. (Requests come in a given *step*, so the schedule is the same on your machine as
# on any other; only the seconds differ.) Three runs: plenty of memory, little memory with
# recompute, little memory with swap. Scheduler and books are yours where they passed.
#
# **Predict.** Without preemption 312 tokens go through the model. How many are computed a second
# time when victims are recomputed?

# %% [markdown] lang="ko" of="9ed8668c"
# ## 실험 A: 선점되었지만 한 글자도 바뀌지 않는다
#
# 이제 진짜 모델입니다. batch 요청 셋이 블록 14개짜리 풀을 채우고, chat 요청 둘이 6단계와 16단계에
# 옵니다. (요청이 오는 시점을 *단계*로 정했으므로 스케줄은 어느 장비에서나 같고, 초만 다릅니다.) 세 번
# 돌립니다. 메모리가 넉넉할 때, 적은 메모리에서 재계산, 적은 메모리에서 스왑. 통과한 스케줄러와 장부는
# 여러분의 것을 씁니다.
#
# **예측.** 선점이 없으면 312토큰이 모델을 지나갑니다. 희생자를 재계산하면 몇 토큰을 두 번
# 계산하게 될까요?

# %% tags=["nbval-ignore-output"]
predict("08.again", low=0, high=300, unit="tokens computed again")

# %% [markdown] lang="en"
# **Run.**

# %% [markdown] lang="ko" of="1de647c9"
# **실행.**

# %% tags=["nbval-ignore-output"]
from labkit.engine.policies import Priority
from labkit.measure.experiments.priorities import differing, little_memory, make_engine, serve

parts = {"scheduler": Scheduler, "books": Books}
swapping = {"preemption": "swap", "swap_memory": "64MB"}
runs = {}
for name, options in {
    "plenty": {"num_blocks": 64},
    "recompute": {"num_blocks": 14},
    "swap": {"num_blocks": 14, **swapping},
}.items():
    run = serve(make_engine(smol, Priority(), **parts, **options), little_memory(smol))
    runs[name] = run
    print(
        f"{name:10} {run.num_preemptions} preemptions, {run.num_swaps} of them swaps; "
        f"{run.num_computed} tokens computed, {run.num_blocks_copied} blocks copied; "
        f"{len(differing(runs['plenty'], run))} of {len(run.requests)} texts differ"
    )
victims = [name for name, r in runs["recompute"].requests.items() if r.num_preemptions]
print("preempted:", ", ".join(victims))
print(repr(smol.tokenizer.decode(runs["recompute"].output[victims[0]])))

# %% tags=["nbval-ignore-output"]
from labkit.workbook.widgets import timeline

timeline(runs["recompute"].schedule, "Preempted and computed again (measured)")

# %% tags=["nbval-ignore-output"]
timeline(runs["swap"].schedule, "Preempted and swapped out (measured)")

# %% [markdown] lang="en"
# **Compare.** In both runs the same request lost its place twice, at the same steps. By recompute
# the victim's row ends each pause with a prefill, in all 108 tokens computed again; by swap it goes
# straight on generating, and 16 blocks are copied, 8 out and 8 back. All five texts are those of
# the undisturbed run.

# %% [markdown] lang="ko" of="07fbdc7b"
# **비교.** 두 실행에서 같은 요청이 같은 단계에 두 번 자리를 잃었습니다. 재계산이면 희생자의 행은 멈출
# 때마다 프리필(prefill)로 돌아오며 모두 108토큰을 다시 계산합니다. 스왑이면 곧바로 생성을 이어 가고, 블록 복사가
# 16번, 나갈 때 8번과 돌아올 때 8번입니다. 다섯 텍스트 모두 방해받지 않은 실행과 같습니다.

# %% tags=["nbval-ignore-output"]
again = runs["recompute"].num_computed - runs["plenty"].num_computed
compare("08.again", again, "tokens computed again")

# %% [markdown] lang="en"
# ### Which is cheaper: tokens or bytes?
#
# Both grow with what the victim had computed. Recompute costs *t* tokens of prefill, swap twice
# *t* × the bytes of a token over the bus.
#
# **Predict.** A request had 256 tokens. How many times longer does it take to come back by
# recompute than by swap, here?

# %% [markdown] lang="ko" of="1122034c"
# ### 토큰과 바이트, 어느 쪽이 싼가?
#
# 둘 다 희생자가 계산해 둔 양에 비례합니다. 재계산은 *t*토큰의 프리필, 스왑은 *t* × 토큰당 바이트를 버스로
# 두 번 나르는 값입니다.
#
# **예측.** 256토큰을 계산해 둔 요청이 돌아오는 데, 여기서는 재계산이 스왑보다 몇 배 오래 걸릴까요?

# %% tags=["nbval-ignore-output"]
predict("08.way_back", low=0.2, high=20, unit="times as long")

# %% tags=["nbval-ignore-output"]
from labkit.measure.experiments.priorities_costs import on_cards, ways_back
from labkit.workbook.figures.priorities import ways_back_figure

back = ways_back(make_engine(smol, Priority(), num_blocks=64, **swapping), [32, 128, 256])
ways_back_figure(back)

# %% tags=["nbval-ignore-output"]
ratio = back[-1].recompute_s / back[-1].swap_s
for card in on_cards():
    print(
        f"modelled, {card.where:5} 8e9 parameters: recompute {card.recompute_us:6.1f} µs a token, "
        f"swap {card.swap_us:4.1f} µs"
    )
compare("08.way_back", ratio, "times as long")

# %% [markdown] lang="en"
# On paper the bytes win on every card. Why then does vLLM V1 only recompute? Three reasons
# that this sum leaves out. A prefill rides along in a step that waits for the weights anyway. With
# a prefix cache the victim's blocks are often still there when it returns, and nothing is computed
# again. And a copy of many small blocks is far from the bus's full speed: vLLM's paper (section
# 7.3) found swapping expensive at small block sizes, and the two comparable at 16 to 64 tokens a
# block. The second reason can be counted:

# %% [markdown] lang="ko" of="b16238c5"
# 계산상으로는 모든 카드에서 바이트 쪽이 이깁니다. 그런데 왜 vLLM V1은 재계산만 할까요? 이 계산에
# 빠진 이유가 셋 있습니다. 프리필은 어차피 가중치를 기다리는 단계에 얹혀 갑니다. 접두사 캐시가 있으면
# 희생자가 돌아왔을 때 블록이 아직 남아 있는 일이 많아 다시 계산할 것이 없습니다. 그리고 작은 블록
# 여럿을 복사하는 일은 버스의 최고 속도에 한참 못 미칩니다. vLLM 논문(7.3절)에서 스왑은 작은 블록에서
# 비쌌고, 블록당 16에서 64토큰이면 둘은 비슷했습니다. 두 번째 이유는 세어 볼 수 있습니다.


# %%
def computed(prefix_caching):
    pool = BlockPool(32, block_size=4, prefix_caching=prefix_caching)
    slow = Request("slow", [1] * 40, max_tokens=4, priority=5)
    urgent = Request("urgent", [2] * 4, max_tokens=1, priority=0, arrival=2.0)
    schedule = play(Scheduler(pool, max_num_seqs=1, policy=Priority()), [slow, urgent])
    return sum(step.num_tokens for step in schedule.steps)


print("tokens computed, without a prefix cache:", computed(False))
print("                 with one:              ", computed(True))

# %% [markdown] lang="en"
# ## Experiment B: priority alone still waits
#
# The study group's short answer to **question 9, is one ModelWorker a serialization point?** is:
# *it can be: a long request blocks the others (head-of-line); schedulers therefore work per token
# step.* Notebook 06 unblocked the line by batching per step. But slots are finite. What if all of
# them are taken?
#
# One slot is enough to see it. A long answer of 24 tokens runs; in step 5 a chat request comes.
#
# **Predict.** How many times sooner does chat have its first token if it may preempt?

# %% [markdown] lang="ko" of="19ee24ca"
# ## 실험 B: 우선순위만으로는 여전히 기다린다
#
# **질문 9** “ModelWorker 하나는 직렬화 지점인가?”에 대한 스터디 그룹의 짧은 답은 *그럴 수 있다. 긴
# 요청이 다른 요청을 막는다(head-of-line). 그래서 스케줄러는 토큰 단계마다 일한다* 입니다. 노트북 06은
# 단계마다 배치를 다시 짜서 줄을 뚫었습니다. 하지만 자리는 유한합니다. 자리가 모두 차 있다면?
#
# 자리 하나면 충분히 볼 수 있습니다. 24토큰짜리 긴 답이 실행 중이고, 5단계에 chat 요청이 옵니다.
#
# **예측.** 선점할 수 있으면 chat의 첫 토큰은 몇 배 빨리 나올까요?

# %% tags=["nbval-ignore-output"]
predict("08.behind", low=1, high=40, unit="times sooner")

# %% tags=["nbval-ignore-output"]
from labkit.engine.policies import FCFS
from labkit.measure.experiments.priorities import WithoutPreemption, behind_a_long_one

behind = {}
for name, policy, slots in (
    ("one at a time, first come", FCFS(), 1),
    ("priority without preemption", WithoutPreemption(), 1),
    ("priority with preemption", Priority(), 1),
    ("a second slot, per token step", FCFS(), 2),
):
    engine = make_engine(smol, policy, scheduler=Scheduler, max_num_seqs=slots)
    run = behind[name] = serve(engine, behind_a_long_one(smol))
    [steps] = run.steps_to_first_token("chat")
    print(
        f"{name:30} chat's first token after {steps:2} steps, {run.ttft('chat', 50):6.2f} s; "
        f"the long one ends in step {run.token_steps['long'][-1]}"
    )

# %% tags=["nbval-ignore-output"]
waits, takes, beside = [*behind.values()][1:]
compare("08.behind", waits.ttft("chat", 50) / takes.ttft("chat", 50), "times sooner")

# %% [markdown] lang="en"
# A priority queue changed nothing: the order of a line is of no use to the one who stands first in
# it. What helps is a free slot, or the right to take one, and both work because the scheduler
# decides anew in every token step. The long answer paid six steps for it. The group's answer
# stands, sharpened: *the worker is a serialization point for whatever can't be interrupted.*
#
# ## Experiment C: when does priority matter?
#
# The study group's short answer to **question 10, when is priority scheduling needed?** is: *when
# loads of different importance share a GPU: chat wants latency, batch wants throughput, agents
# bring long contexts; priority queue, weighted fair, deadline, preemption.* It doesn't say at
# which load.
#
# One engine with 3 slots. Six chat requests (6 tokens out, priority 0) and two agents (a prompt of
# some 150 tokens, priority 1) come over 44 steps; beside them runs a batch job of one request, and
# then of six (24 tokens each, priority 2). Only chat has an SLO, so goodput counts all others. The
# policies: first come, priority, fair. Before that, the part of *fair* that servers get wrong.

# %% [markdown] lang="ko" of="bccdca3f"
# 우선순위 큐는 아무것도 바꾸지 못했습니다. 줄의 순서는 이미 맨 앞에 선 요청에게는 소용이 없습니다.
# 도움이 되는 것은 빈 자리, 아니면 자리를 빼앗을 권리입니다. 둘 다 스케줄러가 토큰 단계마다 새로
# 결정하기에 가능합니다. 긴 답은 그 대가로 여섯 단계를 냈습니다. 그룹의 답은 맞고, 더 정확하게는
# 이렇습니다. *워커는 중단할 수 없는 일에 대해서 직렬화 지점이다.*
#
# ## 실험 C: 우선순위는 언제 중요한가?
#
# **질문 10** “우선순위 스케줄링은 언제 필요한가?”에 대한 스터디 그룹의 짧은 답은 *중요도가 다른 부하가
# GPU를 함께 쓸 때. 채팅은 지연 시간을, 배치는 처리량을 원하고, 에이전트는 긴 컨텍스트를 가져온다.
# 우선순위 큐, 가중 공정, 마감, 선점* 입니다. 어느 정도의 부하인지는 말하지 않습니다.
#
# 자리가 3개인 엔진 하나입니다. chat 요청 여섯(출력 6토큰, 우선순위 0)과 에이전트 둘(프롬프트 약 150토큰, 우선순위 1)이 44단계에 걸쳐 오고, 그 옆에서
# batch 작업이 요청 하나로, 다음에는 여섯으로(각 24토큰, 우선순위 2) 돕니다. SLO는 chat에만 있으므로 goodput은 나머지를 모두 셉니다. 정책은 선착순,
# 우선순위, 공정입니다. 그 전에, 서버들이 틀리는 *공정*의 한 부분을 먼저 만듭니다.

# %% [markdown] lang="en"
# ## Everybody the same share
#
# **Why.** Priority needs somebody who decides what is important. Between tenants who all pay the
# same nobody does. The virtual token counter (Sheng et al., OSDI 2024) gives each tenant a counter
# of the tokens that it was served, and serves whoever has the smallest.
#
# **The invariant.** Who was away must not come back with credit. A tenant that slept for an hour
# has a small counter; served alone until it has caught up, it starves all others. So a tenant that
# joins the line is *lifted* to the smallest counter in it. A counter never falls.

# %% [markdown] lang="ko" of="4cbc34f1"
# ## 모두에게 같은 몫
#
# **왜.** 우선순위에는 무엇이 중요한지 정하는 사람이 필요합니다. 똑같이 돈을 내는 테넌트 사이에는 그런
# 사람이 없습니다. 가상 토큰 카운터(virtual token counter, Sheng 외, OSDI 2024)는 테넌트마다 처리받은
# 토큰을 세고, 카운터가 가장 작은 테넌트를 먼저 처리합니다.
#
# **불변 조건.** 자리를 비웠던 테넌트가 쌓인 몫을 들고 돌아오면 안 됩니다. 한 시간 쉰 테넌트의 카운터는
# 작습니다. 따라잡을 때까지 혼자 처리되면 다른 모두가 굶습니다. 그래서 줄에 들어오는 테넌트는 줄에서 가장
# 작은 카운터로 *끌어올립니다*(lift). 카운터는 결코 줄어들지 않습니다.

# %% show="labkit.engine.policies.fair:Fair"

# %% exercise="08.4"

# %% tags=["nbval-ignore-output"]
Fair = use("08.4")

# %% [markdown] lang="en"
# At work: tenant a has twelve requests in line; b comes in step 8. The order of service by first
# come, by fair shares, and with twice the weight for b.

# %% [markdown] lang="ko" of="17b873e6"
# 동작을 봅시다. 테넌트 a의 요청 열두 개가 줄에 있고, b는 8단계에 옵니다. 선착순, 공정한 몫, b의 가중치를
# 두 배로 했을 때의 처리 순서입니다.


# %%
def order_of_service(policy):
    asked = [Request(f"a{i}", [1] * 4, max_tokens=2, tenant="a") for i in range(12)]
    asked += [Request(f"b{i}", [1] * 4, max_tokens=2, tenant="b", arrival=8.0) for i in range(6)]
    schedule = play(small_scheduler(Scheduler, policy), asked)
    begun = [part for step in schedule.steps for part in step.parts if part.kind == "prefill"]
    return " ".join(part.request_id for part in begun)


for name, policy in (("fcfs", FCFS()), ("fair", Fair()), ("b weighs 2", Fair({"b": 2}))):
    print(f"{name:10}", order_of_service(policy))

# %% [markdown] lang="en"
# ### Back to experiment C
#
# **Predict.** With six batch requests on the engine: how many times shorter is chat's p99 TTFT
# under priority than under first come, first served?

# %% [markdown] lang="ko" of="c7166c5d"
# ### 다시 실험 C로
#
# **예측.** batch 요청이 여섯일 때, 우선순위 정책의 chat p99 TTFT는 선착순보다 몇 배 짧을까요?

# %% tags=["nbval-ignore-output"]
predict("08.saves", low=1, high=100, unit="times shorter")

# %% [markdown] lang="en"
# **Run.** First the light load, under two policies; it also sets the SLO: chat's first token within
# ten of this machine's steps.

# %% [markdown] lang="ko" of="ae15a81a"
# **실행.** 먼저 가벼운 부하를 두 정책으로 돌립니다. 여기서 SLO도 정합니다. chat의 첫 토큰이 이 장비의
# 단계 열 번 안에 나와야 합니다.

# %% tags=["nbval-ignore-output"]
from labkit.measure.experiments.priorities import three_classes


def serve_three(policy, num_batch):
    return serve(make_engine(smol, policy, max_num_seqs=3), three_classes(smol, num_batch))


light = {"fcfs": serve_three(FCFS(), 1), "priority": serve_three(Priority(), 1)}
slo_s = 10 * light["fcfs"].step_seconds
for name, run in light.items():
    print(f"light, {name:9} steps to chat's first tokens: {run.steps_to_first_token('chat')}")
same = light["fcfs"].token_steps == light["priority"].token_steps
print("every token came in the same step under both:", same)

# %% tags=["nbval-ignore-output"]
from labkit.workbook.figures.priorities import classes_figure

heavy = {"fcfs": FCFS(), "priority": Priority(), "fair": Fair()}
heavy = {name: serve_three(policy, 6) for name, policy in heavy.items()}
print(f"SLO: chat's first token within {slo_s:.2f} s")
for name, run in heavy.items():
    print(
        f"heavy, {name:9} steps to chat's first tokens {run.steps_to_first_token('chat')}, "
        f"{run.on_time(slo_s)} of 6 on time, goodput {run.goodput(slo_s):.2f} requests/s\n"
        f"{'':17}{run.num_preemptions} preemptions, {run.num_computed} tokens computed, "
        f"{len(run.schedule.steps)} steps in all"
    )
classes_figure(
    {f"light, {name}": run for name, run in light.items()}
    | {f"heavy, {name}": run for name, run in heavy.items()},
    slo_s,
)

# %% tags=["nbval-ignore-output"]
timeline(heavy["priority"].schedule, "Heavy load under priority (measured)")

# %% tags=["nbval-ignore-output"]
saved = heavy["fcfs"].ttft("chat", 99) / heavy["priority"].ttft("chat", 99)
compare("08.saves", saved, "times shorter")

# %% [markdown] lang="en"
# **Compare.** The group's answer is sharpened: it takes a line. At the light load priority changed
# *nothing*: the same tokens in the same steps, since nobody ever waited. At the heavy load it saved
# the chat: its first tokens came after 1 step instead of 16 to 46. The bill is on the table: 7
# preemptions, a third more tokens through the model, and a batch job that ends 24 steps later (8 more
# in all, in which it runs with slots empty). Fair shares lie between the two for chat, and preempt
# nobody: chat has a share, not a right.
#
# ## Starvation, and the cure
#
# Priority has a dark side. As long as urgent requests keep coming, one that is less urgent waits:
# for ever, if they never stop. *Aging* lets a waiting request gain 1 in priority every so many
# seconds. Virtual clock, one slot: a patient request of priority 5, and an urgent one every second
# for 30 seconds.

# %% [markdown] lang="ko" of="04a97138"
# **비교.** 그룹의 답이 더 정확해집니다. 줄이 있어야 합니다. 가벼운 부하에서 우선순위는 *아무것도* 바꾸지 않았습니다. 같은 토큰이 같은 단계에 나왔습니다. 아무도
# 기다리지 않았기 때문입니다. 무거운 부하에서는 chat을 구했습니다. 첫 토큰이 16에서 46단계 뒤가 아니라 한 단계 뒤에 나왔습니다. 그 값도 표에 있습니다. 선점이 일곱
# 번 일어났고, 모델을 지나간 토큰이 3분의 1 늘었고, batch 작업이 24단계 늦게 끝났습니다(전체는 8단계 늘었고, 그동안 자리가 비어 있었습니다). chat에게 공정한 몫은 그 사이이며 아무도 선점하지 않습니다. chat은 권리가 아니라
# 몫을 가집니다.
#
# ## 기아와 그 처방
#
# 우선순위에는 어두운 면이 있습니다. 급한 요청이 계속 오는 한 덜 급한 요청은 기다립니다. 그치지 않으면
# 영원히 기다립니다. 기아(starvation)입니다. *에이징*은 기다리는 요청의 우선순위를 몇 초마다 1씩
# 올려 줍니다. 가상 시계, 자리 하나입니다. 우선순위 5인 patient 하나와, 30초 동안 1초마다 오는 급한
# 요청들입니다.


# %%
def flood(policy):
    patient = Request("patient", [1] * 4, max_tokens=2, priority=5)
    urgent = [Request(f"u{i:02}", [2] * 4, 1, arrival=float(i)) for i in range(30)]
    return play(small_scheduler(Scheduler, policy), [patient, *urgent])


def begins(schedule, name):
    mine = [s for s in schedule.steps if any(part.request_id == name for part in s.parts)]
    return int(mine[0].begin)


for aging in (None, 8.0, 4.0, 2.0, 1.0):
    print(f"aging={aging!s:5} patient begins at {begins(flood(Priority(aging)), 'patient'):2} s")

# %% tags=["nbval-ignore-output"]
timeline(flood(Priority(4.0)), "A patient request and a flood, aging=4 (virtual clock)")

# %% [markdown] lang="en"
# Without aging it begins when the flood is over, and would wait as long as the flood lasts. With
# `aging=4` it begins after 5 × 4 = 20 s: the difference in priority times the seconds for one. That
# is a bound that you choose (with `aging=8` it would be 40 s, longer than this flood). Age gives a
# right to be admitted and none to preempt.
#
# ## No work for a lost cause
#
# **Why.** A voice assistant that answers after its deadline might as well not have answered, and
# its tokens made others late. *Earliest deadline first* (Liu and Layland, 1973) is optimal as long
# as everybody can be on time; overloaded, it spends its effort on those that are about to fail. So
# what can't be met any more is refused, before any prefill.
#
# **Shapes.** `deadline` and `now` are moments on the engine's clock. `seconds(request)` says how
# long the request takes alone, by the pace of the steps so far; `passed` and `out_of_reach` put the
# refusal into words.

# %% [markdown] lang="ko" of="e8a926f6"
# 에이징이 없으면 홍수가 끝나야 시작합니다. 홍수가 이어지는 만큼 기다린다는 뜻입니다. `aging=4`이면
# 5 × 4 = 20초 뒤에 시작합니다. 우선순위 차이에 1을 올리는 데 걸리는 초를 곱한 값이고, 이 상한은 여러분이
# 정합니다(`aging=8`이면 40초로, 이 홍수보다 깁니다). 나이는 들어갈 권리를 줄 뿐 선점할 권리는 주지
# 않습니다.
#
# ## 늦을 일에는 계산을 쓰지 않기
#
# **왜.** 마감을 넘겨 대답하는 음성 비서는 대답하지 않은 것과 같고, 그 토큰 때문에 다른 요청까지
# 늦었습니다. *가장 이른 마감 먼저*(Liu와 Layland, 1973)는 모두 제시간에 끝날 수 있을 때 최적입니다.
# 과부하가 되면 곧 실패할 요청에 힘을 씁니다. 그래서 더는 맞출 수 없는 것은 프리필 전에 거절합니다.
#
# **모양.** `deadline`과 `now`는 엔진 시계의 시각입니다. `seconds(request)`는 지금까지 단계의 속도로 볼 때
# 그 요청 혼자 얼마나 걸리는지 말합니다. `passed`와 `out_of_reach`는 거절을 말로 옮깁니다.

# %% show="labkit.engine.policies.deadline:EarliestDeadline"

# %% exercise="08.5"

# %% tags=["nbval-ignore-output"]
EarliestDeadline = use("08.5")

# %% [markdown] lang="en"
# At work, on a clock where a step takes 0.1 s and 0.01 s for each token: two requests have run, so
# the pace is known. Then three come at 20 s. One can't make it and is refused with the estimate;
# of the others the earlier deadline goes first.

# %% [markdown] lang="ko" of="ae46be75"
# 동작을 봅시다. 한 단계가 0.1초에 토큰당 0.01초가 더 걸리는 시계입니다. 요청 둘이 먼저 돌아서 속도를
# 압니다. 20초에 셋이 옵니다. 하나는 맞출 수 없어 추정치와 함께 거절되고, 나머지는 마감이 이른 쪽이
# 먼저입니다.

# %%
known = [Request(f"known-{i}", [1] * 8 * (i + 1), max_tokens=4) for i in range(2)]
asked = [
    Request("fine", [3] * 8, max_tokens=20, arrival=20.0, deadline=24.0),
    Request("hopeless", [2] * 8, max_tokens=20, arrival=20.0, deadline=22.0),
    Request("sooner", [4] * 8, max_tokens=4, arrival=20.0, deadline=21.0),
]
deadlines = small_scheduler(Scheduler, EarliestDeadline(), num_blocks=64, slots=2)
schedule = play(deadlines, known + asked, step_seconds=lambda tokens: 0.1 + 0.01 * tokens)
print(*schedule.refused.values(), sep="\n")
print({name: reason for name, reason in schedule.reasons.items() if not name.startswith("known")})
computed_parts = {part.request_id for step in schedule.steps for part in step.parts}
print("anything computed for the hopeless one:", "hopeless" in computed_parts)

# %% [markdown] lang="en"
# The same with the real model: 20 tokens are asked for within half the time that such an answer
# takes here. The estimate is made of this engine's own steps; then we let one run and see how good
# it was. (If the machine was busier before than it is now, the estimate is too long.)

# %% [markdown] lang="ko" of="4fbfd673"
# 진짜 모델로도 해 봅니다. 여기서 20토큰이 걸리는 시간의 절반 안에 답을 달라고 합니다. 추정은 이 엔진
# 자신의 단계에서 나옵니다. 그다음 하나를 실제로 돌려 추정이 얼마나 맞았는지 봅니다. (장비가 그때 더
# 바빴다면 추정이 너무 깁니다.)

# %% tags=["nbval-ignore-output"]
from labkit.measure.experiments.priorities import CHAT, one

engine = make_engine(smol, EarliestDeadline(), scheduler=Scheduler, max_num_seqs=3)
serve(engine, [(0, one(smol, f"known-{i}", CHAT, 6 + 4 * i, 0)) for i in range(2)])
request = one(smol, "voice", CHAT, 20, 0)
estimate = engine.scheduler.pace.seconds(request)
request.arrival = engine.clock()
request.deadline = request.arrival + estimate / 2
try:
    engine.add(request)
except ValueError as refusal:
    print(refusal)
run = serve(engine, [(0, one(smol, "voice", CHAT, 20, 0))])
print(f"estimated {estimate:.2f} s, without a deadline it took {run.seconds:.2f} s")

# %% [markdown] lang="en"
# ## At scale (modelled)
#
# Fourteen requests don't make a service. The simulator drives the real scheduler with 2,000
# requests for each point, on *modelled* steps: an 8-billion-parameter model on one H100, from its
# maker's figures. Lengths and gaps are like those of Azure's conversation trace; two of five are
# chat, two batch, one an agent.
#
# **Predict.** From how many requests a second on does first come, first served miss a p99 TTFT of
# one second for chat?

# %% [markdown] lang="ko" of="f36538a1"
# ## 규모를 키우면 (모델링한 값)
#
# 요청 열네 개는 서비스라고 할 수 없습니다. 시뮬레이터는 점마다 요청 2,000개로 진짜 스케줄러를 돌리되,
# 단계 시간은 *모델링*한 값입니다. H100 한 장 위의 80억 파라미터 모델이며 제조사 수치에서 계산합니다.
# 길이와 간격은 Azure의 대화 트레이스를 닮았고, 다섯 중 둘은 chat, 둘은 batch, 하나는 에이전트입니다.
#
# **예측.** 선착순은 초당 몇 요청부터 chat의 p99 TTFT 1초를 지키지 못할까요?

# %% tags=["nbval-ignore-output"]
predict("08.rate", low=4, high=40, unit="requests/s")

# %% tags=["nbval-ignore-output"]
from labkit.measure.experiments.priorities_simulated import sweep
from labkit.workbook.figures.priorities import rate_figure

points = sweep(("fcfs", "priority"), (8, 20, 24, 28), num_requests=2000)
for point in points:
    print(
        f"modelled, {point.policy:9} {point.rate:2} a second: chat p99 {point.chat_p99_s:6.2f} s, "
        f"{point.chat_on_time:4.0%} on time; batch {point.batch_e2e_s:5.1f} s; "
        f"goodput {point.goodput:4.1f}; {point.num_preemptions} preemptions"
    )
rate_figure(points)

# %% tags=["nbval-ignore-output"]
first_come = [point for point in points if point.policy == "fcfs"]
late = next((point.rate for point in first_come if point.chat_p99_s > 1), float("inf"))
compare("08.rate", late, "requests/s", modelled=True)

# %% [markdown] lang="en"
# The same picture as on your machine, by the thousand (and modelled, not measured): far below
# saturation the two lines lie on each other, and the policy is a matter of taste. Beyond it first
# come makes *everybody* late, and priority moves the whole wait to the batch job. Look at the
# goodput near the bend: every preemption by recompute throws work away, so priority serves fewer
# requests in time there than first come does. It creates no capacity, it chooses who feels the lack
# of it.
#
# Now design a workload of your own.

# %% [markdown] lang="ko" of="17f57be6"
# 여러분의 장비에서 본 그림이 수천 개 규모에서도 나옵니다(측정이 아니라 모델링한 값). 포화에서 멀면 두 선이 겹치고 정책은 취향
# 문제입니다. 포화를 넘으면 선착순은 *모두*를 늦게 하고, 우선순위는 기다림을 전부 batch로 옮깁니다. 꺾이는
# 곳의 goodput을 보세요. 재계산으로 선점할 때마다 한 일을 버리므로, 그 부근에서 우선순위가 제때
# 처리하는 요청은 선착순보다 적습니다. 용량을 만들지는 않습니다. 누가 부족을 느낄지 고를 뿐입니다.
#
# 이제 여러분만의 부하를 설계해 보세요.

# %% tags=["nbval-ignore-output"]
from labkit.workbook.widgets import workload_designer

workload_designer(policy="priority")

# %% [markdown] lang="en"
# ## What breaks
#
# **1. The plan still mentions the victim.** The bug from the top of this page, on the batch and the
# agent of exercise 08.1. In step 2 two requests are scheduled and one of them is running; vLLM's
# assertion compared these two numbers. (`Leaky` puts back what `plan.remove` took out.)

# %% [markdown] lang="ko" of="4dbd76c2"
# ## 무엇이 깨지는가
#
# **1. 계획에 희생자가 남아 있다.** 맨 위에서 본 버그를 실습 08.1의 batch와 agent로 재현합니다.
# 2단계에서 스케줄된 요청은 둘인데 실행 중인 것은 하나입니다. vLLM의 assert가 이 두 수를 비교했습니다.
# (`Leaky`는 `plan.remove`가 빼낸 것을 도로 넣습니다.)


# %%
class Leaky(Scheduler):
    def _preempt(self, plan, victim):
        chunk = plan.chunks.get(victim.request_id)
        super()._preempt(plan, victim)
        if chunk:
            plan.chunks[victim.request_id] = chunk
            plan.budget -= chunk.num_tokens


for kind in (Leaky, Scheduler):
    step = play(small_scheduler(kind, MostUrgentFirst(), **tight), batch_and_agent()).steps[2]
    scheduled = [part.request_id for part in step.parts]
    print(f"{kind.__name__:10} scheduled: {scheduled}   holds blocks: {[*step.blocks]}")

# %% [markdown] lang="en"
# **2. Ping-pong.** "As urgent or more" instead of "more urgent", and two equal requests of 32
# prompt tokens take the slot from each other in every step. Both do end, since each gets a token
# out of its turn, and the server looks busy. (Pull request 54530 to vLLM names this danger: its
# line breaks ties by arrival, so a victim would reclaim its slot at once. The proposal therefore
# compares priorities alone.)

# %% [markdown] lang="ko" of="7d43e05d"
# **2. 핑퐁.** “더 급하면” 대신 “같거나 더 급하면”으로 하면, 프롬프트 32토큰짜리 같은 순위의 요청 둘이
# 단계마다 서로 자리를 빼앗습니다. 차례마다 토큰 하나씩은 얻으므로 결국 끝나고, 서버는 바빠 보입니다.
# (vLLM의 PR 54530이 이 위험을 짚습니다. vLLM의 줄은 동점을 도착 시각으로 가르므로, 희생자가 바로 자리를
# 되찾게 됩니다. 그래서 이 제안은 우선순위만 비교합니다.)


# %%
class PingPong(MostUrgentFirst):
    def may_preempt(self, waiting, running):
        ran = running.num_computed_tokens > 0  # or not even this step would end
        return ran and waiting.priority <= running.priority


for policy in (PingPong(), MostUrgentFirst()):
    equals = [Request(name, [1] * 32, max_tokens=6, priority=0) for name in ("a", "b")]
    schedule = play(small_scheduler(Scheduler, policy), equals)
    tokens = sum(step.num_tokens for step in schedule.steps)
    preempted = sum(len(step.preempted) for step in schedule.steps)
    print(f"{type(policy).__name__:16} {preempted:2} preemptions, {tokens:3} tokens computed")

# %% [markdown] lang="en"
# **3. The seed begins anew.** A request with a seed draws from a random generator. vLLM V0 made
# the generator whenever a request was prefilled, so also when it came back from a preemption (pull
# request 19940 describes it): the draws began at the first again, and "seed: 3" no longer meant the
# same text. In labkit a draw depends on the seed and on the number of the token, and there is no
# state to lose.

# %% [markdown] lang="ko" of="5b8756da"
# **3. seed가 처음부터 다시 시작한다.** seed가 있는 요청은 난수 생성기에서 값을 뽑습니다. vLLM V0은 요청을
# 프리필할 때마다 생성기를 만들었고, 선점되었다가 돌아올 때도 그랬습니다(PR 19940의 설명). 난수가 처음부터
# 다시 나오므로 "seed: 3"이 더는 같은 텍스트를 뜻하지 않습니다. labkit에서는 seed와 토큰의 순번만으로 값을
# 뽑으므로 잃을 상태가 없습니다.

# %%
from random import Random

generator, draws = Random(3), []
for token in range(6):
    if token == 3:
        generator = Random(3)  # preempted, and prefilled again
    draws.append(generator.randrange(100))
undisturbed = Random(3)
print("a generator made at prefill:", draws)
print("undisturbed:                ", [undisturbed.randrange(100) for _ in range(6)])

# %%
from labkit.model.sampling_params import SamplingParams

tiny = load_decoder("tiny", device=device)


def seeded(interrupt):
    engine = make_engine(tiny, Priority(), scheduler=Scheduler, max_num_seqs=1, num_blocks=32)
    sampling = SamplingParams(temperature=1.0, max_tokens=12, ignore_eos=True, seed=3)
    slow = Request("slow", [5, 9, 2, 7], sampling=sampling, priority=5)
    urgent = [(4, Request("urgent", [1, 2, 3], max_tokens=2, ignore_eos=True))]
    serve(engine, [(0, slow), *(urgent if interrupt else [])])
    return slow


alone, disturbed = seeded(False), seeded(True)
print("preemptions:", alone.num_preemptions, "and", disturbed.num_preemptions)
print("the same tokens:", alone.output_token_ids == disturbed.output_token_ids)

# %% [markdown] lang="en"
# ## Your answers
#
# **9. Is one ModelWorker a serialization point?** For a request that can't be interrupted, yes: a
# priority queue in front of it changed nothing. Deciding per token step lets others run beside a
# long one while slots last, and preemption where they don't.
#
# **10. When is priority scheduling needed?** When there is a *line*. At the light load it changed
# not a single step; at the heavy one it brought chat's first token from 16 to 46 steps down to one.
# The group's list is right, and lacks the condition: below saturation all policies are the same.
# And it has a price: recomputed tokens, a later batch job, and starvation unless there is aging.

# %% [markdown] lang="ko" of="e18cb950"
# ## 여러분의 답
#
# **9. ModelWorker 하나는 직렬화 지점인가?** 중단할 수 없는 요청에 대해서는 그렇습니다. 그 앞에 우선순위
# 큐를 두어도 달라지지 않았습니다. 토큰 단계마다 결정하면 자리가 있는 동안은 긴 요청 옆에서 다른 요청이
# 돌고, 자리가 없으면 선점합니다.
#
# **10. 우선순위 스케줄링은 언제 필요한가?** *줄*이 있을 때입니다. 가벼운 부하에서는 한 단계도 바꾸지
# 못했고, 무거운 부하에서는 16단계에서 46단계까지 걸리던 chat의 첫 토큰을 한 단계로
# 줄였습니다. 그룹의 목록은 맞지만
# 조건이 빠져 있습니다. 포화 전에는 모든 정책이 같습니다. 그리고 값이 있습니다. 다시 계산한 토큰, 늦어진
# batch, 에이징이 없을 때의 기아입니다.

# %% tags=["nbval-ignore-output"]
answer(
    9,
    chat_ttft_behind_a_long_one_s=waits.ttft("chat", 50),
    chat_ttft_with_preemption_s=takes.ttft("chat", 50),
    chat_ttft_in_a_second_slot_s=beside.ttft("chat", 50),
    chat_steps_behind_a_long_one=waits.steps_to_first_token("chat")[0],
    chat_steps_with_preemption=takes.steps_to_first_token("chat")[0],
)

# %% tags=["nbval-ignore-output"]
answer(
    10,
    light_fcfs_chat_ttft_p99_s=light["fcfs"].ttft("chat", 99),
    light_priority_chat_ttft_p99_s=light["priority"].ttft("chat", 99),
    heavy_fcfs_chat_ttft_p99_s=heavy["fcfs"].ttft("chat", 99),
    heavy_priority_chat_ttft_p99_s=heavy["priority"].ttft("chat", 99),
    heavy_fcfs_goodput=heavy["fcfs"].goodput(slo_s),
    heavy_priority_goodput=heavy["priority"].goodput(slo_s),
    heavy_fcfs_steps=len(heavy["fcfs"].schedule.steps),
    heavy_priority_steps=len(heavy["priority"].schedule.steps),
)

# %% [markdown] lang="en"
# ## The ladder
#
# All six rungs on one workload, the last one with your parts beside the reference. Nobody is
# preempted here: the last rung should cost nothing.

# %% [markdown] lang="ko" of="23c602be"
# ## 사다리
#
# 같은 부하에서 여섯 단을 모두 재고, 마지막 단은 직접 만든 코드를 labkit의 코드와 나란히 놓습니다. 여기서는
# 아무도 선점되지 않으므로, 마지막 단에 드는 비용은 없어야 합니다.

# %% tags=["nbval-ignore-output"]
from labkit.workbook.ladder import ladder

ladder("preemptive")

# %% [markdown] lang="en"
# ## Serve it
#
# `python3 -m labkit serve --mine --rung preemptive --policy priority` serves over HTTP with your
# parts; its banner and `/v1/requests` say which are yours. `priority` (lower is more urgent),
# `deadline_ms` and `user` (the tenant) go beside the fields of OpenAI's API:
#
# ```
# curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \
#   -d '{"messages": [{"role": "user", "content": "Quick: 2 + 2?"}], "priority": -1}'
# ```
#
# ```python
# from openai import OpenAI
#
# client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")
# client.chat.completions.create(
#     model="smollm2-135m",
#     messages=[{"role": "user", "content": "Summarize these notes: …"}],
#     extra_body={"priority": 5},
# )
# ```
#
# Fill the slots with the second (`--max-num-seqs 2` makes that easy), send the first, and watch the
# page at `/`. With `--policy fair` set `user`, with `--policy deadline` set `deadline_ms`.

# %% [markdown] lang="ko" of="43874fa6"
# ## 서빙하기
#
# `python3 -m labkit serve --mine --rung preemptive --policy priority`는 직접 만든 코드로 HTTP 서빙을
# 합니다. 어느 부분이 직접 만든 것인지는 시작 배너와 `/v1/requests`가 말해 줍니다. `priority`(작을수록 급함),
# `deadline_ms`, `user`(테넌트)는 OpenAI API의 필드와 나란히 보냅니다.
#
# ```
# curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \
#   -d '{"messages": [{"role": "user", "content": "Quick: 2 + 2?"}], "priority": -1}'
# ```
#
# ```python
# from openai import OpenAI
#
# client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")
# client.chat.completions.create(
#     model="smollm2-135m",
#     messages=[{"role": "user", "content": "Summarize these notes: …"}],
#     extra_body={"priority": 5},
# )
# ```
#
# 두 번째 요청으로 자리를 채우고(`--max-num-seqs 2`면 쉽습니다) 첫 번째를 보낸 뒤 `/` 페이지를 보세요.
# `--policy fair`이면 `user`를, `--policy deadline`이면 `deadline_ms`를 보냅니다.

# %% [markdown] lang="en"
# ## In vLLM and Triton Inference Server
#
# - **Policies** in vLLM are two: `--scheduling-policy fcfs` or `priority`, the class of the waiting
#   queue (`vllm/v1/core/sched/request_queue.py`). A request's `priority` is a field of its API,
#   lower first; other than 0 it is an error without the policy. There are no tenants and no
#   deadlines, so fairness is left to a gateway in front.
# - **Preemption** is `_preempt_request` in `vllm/v1/core/sched/scheduler.py`, by recompute only. V0
#   had a swap space; in V1 blocks go to the host by an offloading connector, as a second prefix
#   cache.
# - **Who may preempt.** There a *running* request that needs a block takes it from the least urgent.
#   A waiting one, with all slots taken, waits, however urgent it is: issue 40004, open as this was
#   written. Your `_find_room` does more. SGLang has `--enable-priority-scheduling`, and a threshold
#   by which a waiting request must be more urgent to preempt.
# - **Triton Inference Server** (the server, not the kernel language of the same name) has
#   `priority_levels` and queue policies with timeouts in its dynamic batcher: an order of the line
#   in front of a model, and what has begun is never interrupted. Experiment B tells what that is
#   worth. Inside its TensorRT-LLM backend the capacity scheduler decides: `GUARANTEED_NO_EVICT`
#   admits only what can end without being paused, `MAX_UTILIZATION` may pause requests.
#
# Next: notebook 09, many models and many replicas. First, your progress.

# %% [markdown] lang="ko" of="3251ba01"
# ## vLLM과 Triton Inference Server에서는
#
# - **정책**은 vLLM에 둘 있습니다. `--scheduling-policy fcfs` 또는 `priority`이며, 대기 큐의 클래스가 곧
#   정책입니다(`vllm/v1/core/sched/request_queue.py`). 요청의 `priority`는 API 필드이고 작을수록 먼저입니다.
#   정책을 켜지 않고 0이 아닌 값을 보내면 오류입니다. 테넌트와 마감은 없어서 공정성은 앞단 게이트웨이의 몫입니다.
# - **선점**은 `vllm/v1/core/sched/scheduler.py`의 `_preempt_request`이고 재계산만 합니다. V0에는 스왑
#   공간이 있었습니다. V1에서는 오프로딩 커넥터가 블록을 호스트로 보내며, 두 번째 접두사 캐시로 쓰입니다.
# - **누가 선점하는가.** vLLM에서는 *실행 중인* 요청에 블록이 필요할 때 가장 덜 급한 요청에게서 빼앗습니다.
#   자리가 모두 찼으면 기다리는 요청은 아무리 급해도 기다립니다(이슈 40004, 이 글을 쓸 때 열려 있음).
#   여러분의 `_find_room`은 더 많은 일을 합니다. SGLang에는 `--enable-priority-scheduling`과, 얼마나 더
#   급해야 선점하는지 정하는 임계값이 있습니다.
# - **Triton Inference Server**(같은 이름의 커널 언어가 아니라 서버)의 dynamic batcher에는 `priority_levels`와
#   타임아웃이 있는 큐 정책이 있습니다. 모델 앞 줄의 순서일 뿐, 시작한 일은 중단하지 않습니다. 그것이 어떤
#   값어치인지는 실험 B가 말해 줍니다. TensorRT-LLM 백엔드 안에서는 capacity scheduler가 정합니다.
#   `GUARANTEED_NO_EVICT`는 멈추지 않고 끝낼 수 있는 요청만 들이고, `MAX_UTILIZATION`은 요청을 멈출 수
#   있습니다.
#
# 다음은 여러 모델과 여러 복제본을 다루는 노트북 09입니다. 먼저 진행 상황을 확인하세요.

# %% tags=["nbval-ignore-output"]
progress()
