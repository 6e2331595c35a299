# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] lang="en"
# # 09 · Models and replicas
#
# In August 2026 an issue of vLLM's router described how a replica drowns while others idle. The
# router sends a prompt to the replica that has its beginning in the cache, unless that one has too
# many requests under way. But every ten health checks it set all counts of requests to zero,
# whatever was under way, and kept its notes of beginnings. The busiest replica looked idle, and
# was the one that had everything cached. So it got more (vllm-project/router issue 197; pull
# request 216, open as this was written, takes the reset out).
#
# A router knows its replicas only by what it has written down: *what is where*, and *how busy is
# who*. This notebook is about keeping such notes true, for models in a memory and for replicas of
# a model, also while requests fail, are cancelled, and come all at once.
#
# **After this notebook you can**
#
# - serve more models than fit in memory, without loading one twice or losing one in use;
# - send a prompt to where its beginning is cached, and not everybody to the same replica;
# - leave a replica alone that hangs, and take it back when it is well;
# - keep sessions where they are when a replica dies.
#
# It answers none of the ten questions: it draws the right half of the map.

# %% [markdown] lang="ko" of="c68a3ef7"
# # 09 · 여러 모델과 여러 복제본
#
# 2026년 8월, vLLM router의 한 이슈가 어떤 복제본은 넘쳐 나는데 다른 복제본은 노는 까닭을 설명했습니다.
# 이 라우터는 프롬프트의 시작 부분이 캐시에 있는 복제본으로 요청을 보내되, 진행 중인 요청이 너무 많으면
# 피합니다. 그런데 헬스 체크 열 번마다, 무엇이 진행 중이든 요청 수를 모두 0으로 되돌리면서 시작 부분에
# 대한 기록은 그대로 두었습니다. 가장 바쁜 복제본이 한가해 보였고, 캐시를 다 가진 것도 그 복제본이었습니다.
# 그래서 더 많이 받았습니다(vllm-project/router 이슈 197. 초기화를 없애는 PR 216은 이 글을 쓸 때 열려
# 있음).
#
# 라우터는 적어 둔 것으로만 복제본을 압니다. *무엇이 어디에 있는가*, 그리고 *누가 얼마나 바쁜가*. 이
# 노트북의 주제는 이 기록이 늘 사실과 맞도록 지키는 것입니다. 메모리 안의 모델에 대해서도, 한 모델의 복제본에
# 대해서도, 요청이 실패하고 취소되고 한꺼번에 몰려와도 말입니다.
#
# **이 노트북을 마치면**
#
# - 메모리에 다 들어가지 않는 여러 모델을, 두 번 불러오거나 쓰는 중에 잃지 않고 서빙할 수 있습니다.
# - 시작 부분이 캐시에 있는 곳으로 프롬프트를 보내되, 모두를 한 복제본으로 몰지 않을 수 있습니다.
# - 멈춘 복제본을 내버려 두었다가, 나으면 다시 받아들일 수 있습니다.
# - 복제본이 죽어도 세션을 제자리에 둘 수 있습니다.
#
# 열 가지 질문에 답하는 노트북은 아닙니다. 지도의 오른쪽 절반을 그립니다.

# %% header minutes=15

# %% [markdown] lang="en"
# ## If you start here: three minutes
#
# ```
#  request {"model": "chat", "messages": …}
#      │
#      ▼
#  Router.choose(request, replicas) → index      who is healthy, warm, least loaded?
#      │  dispatched / finished count the load   Breaker.allows(now): may it be tried at all?
#      ▼
#  one of the replicas: an API and its engine(s)
#      │
#      ▼
#  ModelCache.acquire(name) → Entry              is it in memory? load once, pin, release
#      │  Shelf.victims(bytes)                   who has to leave for it?
#      ▼
#  engine: blocks, a prefix cache (04), a scheduler (06, 08)
# ```
#
# - A *replica* is one more server of the same model. Its KV cache is its own: what one has computed
#   another one computes again.
# - Blocks of a prompt have names, chained hashes (04). Two prompts that begin alike have the same
#   first hashes; so a router can tell without knowing any text.
# - TTFT runs from arrival to the first token; p99 is the value that 99 of 100 stay below.

# %% [markdown] lang="ko" of="c888314f"
# ## 여기서 시작한다면: 3분 요약
#
# ```
#  요청 {"model": "chat", "messages": …}
#      │
#      ▼
#  Router.choose(request, replicas) → 인덱스     누가 정상이고, 따뜻하고, 한가한가?
#      │  dispatched / finished가 부하를 셈      Breaker.allows(now): 시도해도 되는가?
#      ▼
#  복제본 하나: API와 엔진
#      │
#      ▼
#  ModelCache.acquire(name) → Entry              메모리에 있는가? 한 번만 불러오고, 고정하고, 놓기
#      │  Shelf.victims(bytes)                   누가 자리를 내주는가?
#      ▼
#  엔진: 블록, 접두사 캐시(04), 스케줄러(06, 08)
# ```
#
# - *복제본*(replica)은 같은 모델을 서빙하는 또 하나의 서버입니다. KV 캐시는 저마다 따로라서, 하나가
#   계산한 것을 다른 하나는 다시 계산합니다.
# - 프롬프트의 블록에는 사슬로 이은 해시라는 이름이 있습니다(04). 똑같이 시작하는 두 프롬프트는 앞쪽
#   해시가 같으므로, 라우터는 텍스트를 몰라도 알아볼 수 있습니다.
# - TTFT는 도착에서 첫 토큰까지, p99는 100개 중 99개가 넘지 않는 값입니다.

# %% tags=["nbval-ignore-output"]
from labkit.model import best_device, load_decoder

device = best_device()
smol = load_decoder("smollm2-135m", device=device)
print(f"{smol.name} on {device}")

# %% [markdown] lang="en"
# ## Many models, one memory
#
# **Why.** A company has forty fine-tuned models, and four of them are asked for at any time. A card
# for each would idle; all on one don't fit. So models come when they are asked for, and somebody
# leaves for them.
#
# **Shapes and invariants.** A `Shelf` has a `budget` in bytes and `entries`, the least recently
# used first. Models differ in size by a hundred, so *bytes* count, not models. An entry is READY,
# or LOADING, or WAITING for room, or LEAVING as soon as the next one is there; only one that is
# READY and has no pins (`is_idle`) may be told to leave. And leaving must be *enough*: throwing
# three models out and still having no room for the fourth is the mistake of 08's preemption again.

# %% [markdown] lang="ko" of="214ee62e"
# ## 여러 모델, 하나의 메모리
#
# **왜.** 어느 회사에 미세 조정한 모델이 마흔 개 있고, 그때그때 쓰이는 것은 네 개입니다. 모델마다 카드를
# 하나씩 주면 놀고, 한 장에 모두 올리면 들어가지 않습니다. 그래서 모델은 요청받을 때 들어오고, 누군가
# 자리를 내줍니다.
#
# **모양과 불변 조건.** `Shelf`에는 바이트 단위의 `budget`과, 가장 오래 쓰이지 않은 것이 앞에 오는
# `entries`가 있습니다. 모델의 크기는 백 배씩 다르므로 개수가 아니라 *바이트*를 셉니다. 항목은 READY이거나,
# LOADING이거나, 자리를 기다리는 WAITING이거나, 다음 모델이 들어오는 대로 나갈 LEAVING입니다. READY이고
# pin이 없는 것(`is_idle`)만 내보낼 수 있습니다. 그리고 나가는 것은 *충분해야* 합니다. 셋을 내보내고도
# 넷째가 들어올 자리가 없다면, 08의 선점에서 본 실수를 되풀이하는 것입니다.

# %% show="labkit.fleet.model_cache:Entry"

# %% show="labkit.fleet.model_cache:Shelf"

# %% exercise="09.1"

# %% tags=["nbval-ignore-output"]
model_cache = use_module("09.1")

# %% [markdown] lang="en"
# At work: a card of 80 GB. A stream uses `chat`; three others idle, `mail` for longest.

# %% [markdown] lang="ko" of="8fd65b00"
# 동작을 봅시다. 80GB 카드입니다. `chat`은 스트림이 쓰고 있고, 나머지 셋은 쉬며, `mail`이 가장 오래 쉬었습니다.

# %%
GB = 10**9
shelf = model_cache.Shelf(budget=80 * GB)
for name, size, pins in (("chat", 16, 1), ("mail", 6, 0), ("code", 34, 0), ("tags", 2, 0)):
    ready = model_cache.State.READY
    shelf.entries[name] = model_cache.Entry(name, size * GB, pins, ready)
print(f"taken: {shelf.num_bytes // GB} of {shelf.budget // GB} GB")
for needed in (20, 26, 40, 62, 65):
    victims = shelf.victims(needed * GB)
    names = "must wait" if victims is None else [entry.name for entry in victims] or "room"
    print(f"{needed} GB more: {names}")

# %% [markdown] lang="en"
# The last line is the interesting one: with all three gone 64 GB would be free, 65 are needed, so
# nobody leaves.
#
# ## One load, however many ask
#
# **Why.** Ten requests for a model that isn't there arrive within a second. One load takes ten
# seconds and all of the disk's bandwidth. What must not happen: ten loads; a model that is evicted
# between the end of its load and the first request's turn; a client that goes away and ends the
# load that nine others wait for; a failed load that everybody is told of for ever.
#
# **Shapes and invariants.** The load belongs to a task of the entry (`_begin(name)` makes both, and
# puts the entry on the shelf), to no caller. A *pin* is a caller that uses the model or waits for
# it. `_load` takes a failed entry off the shelf again, so that the next caller begins anew.
#
# Between two `await`s nobody else runs; at each of them everything may have changed.

# %% [markdown] lang="ko" of="f1753614"
# 마지막 줄이 흥미롭습니다. 셋이 모두 나가도 64GB가 비는데 65가 필요하므로 아무도 나가지 않습니다.
#
# ## 몇 명이 요청하든 한 번만 불러오기
#
# **왜.** 메모리에 없는 모델을 찾는 요청 열 개가 1초 안에 옵니다. 한 번 불러오는 데 10초와 디스크의 모든
# 대역폭이 듭니다. 일어나면 안 되는 일은 이렇습니다. 열 번 불러오기. 불러오기가 끝나고 첫 요청의 차례가 오기
# 전에 모델이 쫓겨나는 것. 떠난 클라이언트 하나 때문에 나머지 아홉이 기다리던 불러오기까지 중단되는 것. 한
# 번의 실패를 모두에게 영원히 돌려주는 것.
#
# **모양과 불변 조건.** 불러오기는 어느 호출자의 것도 아닌, 항목의 태스크가 합니다(`_begin(name)`이 둘을
# 만들고 항목을 선반에 올립니다). *pin*은 모델을 쓰거나 기다리는 호출자 하나입니다. 실패한 항목은 `_load`가
# 선반에서 내리므로, 다음 호출자는 새로 시작합니다.
#
# 두 `await` 사이에는 다른 누구도 실행되지 않습니다. `await`마다 모든 것이 달라져 있을 수 있습니다.

# %% show="labkit.fleet.model_cache:ModelCache"

# %% exercise="09.2"

# %% tags=["nbval-ignore-output"]
ModelCache = use("09.2")

# %% [markdown] lang="en"
# At work, without a model: room for one. A streams; ten requests for B come at once; one of their
# clients goes away.

# %% [markdown] lang="ko" of="9e432af6"
# 모델 없이 동작을 봅시다. 자리는 하나입니다. A가 스트림 중일 때 B를 찾는 요청 열 개가 한꺼번에 오고, 그중
# 한 클라이언트는 떠납니다.

# %%
import asyncio
from collections import Counter

from labkit.measure.experiments.fleet_models import Stays
from labkit.measure.experiments.processes_http import run_beside

events, answered = [], Counter()


async def make(name):
    events.append(f"{name} is loaded")
    await asyncio.sleep(0.01)
    return name


async def ask_for(cache, name, until=None):
    async with cache.use(name):
        if until:
            await until.wait()
        answered[name] += 1
        if answered[name] in (1, 9):
            events.append(f"{name} has answered {answered[name]}")


async def story():
    cache, end = ModelCache(100, Stays(lambda name: 60, make)), asyncio.Event()
    streaming = asyncio.create_task(ask_for(cache, "A", end))
    await asyncio.sleep(0.1)
    ten = [asyncio.create_task(ask_for(cache, "B")) for _ in range(10)]
    await asyncio.sleep(0.1)
    ten[3].cancel()
    events.append(f"in memory: {cache.shelf.num_bytes} bytes of 100, B waits")
    end.set()
    await asyncio.gather(streaming, *ten, return_exceptions=True)
    events.append(f"loads: {cache.loads}, pins of B: {cache.shelf.entries['B'].num_pins}")
    await cache.close()


run_beside(story())
print(*events, sep="\n")

# %% [markdown] lang="en"
# ## Experiment A: six models, room for three
#
# Real models now: SmolLM2-135M in bfloat16 under three names, in float32 under a fourth, twice as
# large, and `tiny` twice. Room for 900 MB. Sixteen requests come one after the other, every second
# one for `chat`. In this order: chat write chat code chat write chat tiny-1 chat tiny-2 chat tiny-2
# chat mail chat mail. `write` is the large one. Who leaves: the least recently used, or, for
# comparison, who came first?
#
# **Predict.** How many of the 16 requests find their model in memory, with the least recently used
# leaving?

# %% [markdown] lang="ko" of="78909ee5"
# ## 실험 A: 모델 여섯, 자리는 셋
#
# 이제 진짜 모델입니다. bfloat16의 SmolLM2-135M이 이름 셋으로, 두 배 큰 float32가 네 번째 이름으로, `tiny`가
# 둘 있습니다. 자리는 900MB입니다. 요청 열여섯 개가 차례로 오고, 둘 중 하나는 `chat`을 찾습니다. 순서는
# chat write chat code chat write chat tiny-1 chat tiny-2 chat tiny-2 chat mail chat mail이고, 큰 것은
# `write`입니다. 가장 오래 쓰이지 않은 것이 나갈 때와, 비교를 위해 먼저 온 것이 나갈 때를 봅니다.
#
# **예측.** 가장 오래 쓰이지 않은 것이 나간다면, 16개 중 몇 개의 요청이 모델을 메모리에서 찾을까요?

# %% tags=["nbval-ignore-output"]
predict("09.hits", low=0, high=16, unit="of 16 requests", step=1)

# %% [markdown] lang="en"
# **Run.** Each load is real, so this takes some seconds.

# %% [markdown] lang="ko" of="46cc2671"
# **실행.** 모두 진짜로 불러오므로 몇 초 걸립니다.

# %% tags=["nbval-ignore-output"]
from labkit.measure.experiments.fleet_models import (
    ASKED,
    MODEL_MEMORY,
    MODELS,
    FirstIn,
    bytes_of,
    engines,
    visit_in_turn,
)
from labkit.workbook.figures.fleet import shelf_figure

print(", ".join(f"{name} {bytes_of(name) / 1e6:,.0f} MB" for name in MODELS))


def visit_all(first_in=False, asked=ASKED):
    async def visits():
        cache = ModelCache(MODEL_MEMORY, engines(device))
        if first_in:
            cache.shelf.entries = FirstIn()
        return await visit_in_turn(cache, asked)

    return run_beside(visits())


visit_all(asked=["chat", "tiny-1"])  # the very first loads take longer
visited = {"least recently used": visit_all(), "first in, first out": visit_all(first_in=True)}
for name, run in visited.items():
    print(
        f"{name:20} {run.num_hits:2} of {len(ASKED)} find their model, {run.num_loads} loads, "
        f"{sum(s.num_bytes for s in run.stays) / 1e9:.1f} GB loaded, {run.waited_s:.1f} s waited"
    )
shelf_figure(visited, MODEL_MEMORY)

# %% tags=["nbval-ignore-output"]
compare("09.hits", visited["least recently used"].num_hits, "of 16 requests")

# %% [markdown] lang="en"
# **Compare.** First in, first out throws `chat` out twice: it came first, and is asked for in every
# second request. Two loads more, and half a gigabyte. Neither can avoid that `write`, as large as
# two others, fills more than half of the shelf.
#
# Counting models instead of bytes would be worse. "Three models" don't fit when `write` is one of
# them; to be safe the limit has to be *two*, and then `tiny-1`, a single megabyte, throws out a
# model of 281.
#
# What no order of eviction gives: the first request for a model waits, always. A model that must
# answer within a second belongs in memory of its own. Notebook 10 asks what that costs.
#
# ## Many replicas, one question
#
# One engine isn't enough, so there are several, each with a cache of its own. Who gets the next
# request? A router is asked with `choose` and told with `dispatched` and `finished`.

# %% [markdown] lang="ko" of="d562d34d"
# **비교.** 먼저 온 것을 먼저 내보내면 `chat`이 두 번 쫓겨납니다. 맨 먼저 왔지만, 요청 둘 중 하나가 찾는
# 모델입니다. 두 번 더, 0.5GB를 더 불러옵니다. 모델 둘만큼 큰 `write`가 선반의 절반 넘게 차지하는 것은 어느
# 쪽도 피할 수 없습니다.
#
# 바이트 대신 모델 수를 세면 더 나쁩니다. “셋까지”로는 `write`가 끼면 들어가지 않습니다. 안전하려면 상한이
# *둘*이어야 하고, 그러면 1MB짜리 `tiny-1`이 281MB짜리 모델을 쫓아냅니다.
#
# 어떤 순서로 내보내도 얻을 수 없는 것이 있습니다. 모델의 첫 요청은 언제나 기다립니다. 1초 안에 대답해야
# 하는 모델은 자기만의 메모리에 있어야 합니다. 그 값은 노트북 10에서 따집니다.
#
# ## 여러 복제본, 질문은 하나
#
# 엔진 하나로는 모자라서 여럿을 두고, 캐시는 저마다 따로입니다. 다음 요청은 누가 받을까요? 라우터에게
# `choose`로 묻고, `dispatched`와 `finished`로 알려 줍니다.

# %% show="labkit.fleet.replicas:Replica"

# %% show="labkit.fleet.replicas:Router.dispatched"

# %% [markdown] lang="en"
# The load counts *from dispatch*. Sixteen requests come at once to four replicas. Counted from the
# first token, a replica looks idle for as long as it computes prompts, and everybody goes there:

# %% [markdown] lang="ko" of="7a972f3d"
# 부하는 *보낸 순간부터* 셉니다. 요청 열여섯 개가 복제본 넷에 한꺼번에 옵니다. 첫 토큰부터 세면 복제본은
# 프롬프트를 계산하는 동안 한가해 보이고, 모두가 그리로 갑니다.

# %%
from types import SimpleNamespace

from labkit.fleet.routing import LeastLoaded, Replica
from labkit.measure.experiments.fleet_routing import CountsLate


def burst(router, num_requests=16, num_replicas=4):
    replicas, went = [Replica(f"r{i}") for i in range(num_replicas)], [0] * num_replicas
    for _ in range(num_requests):
        request = SimpleNamespace(prompt_token_ids=range(100), max_tokens=20)
        index = router.choose(request, replicas)
        router.dispatched(request, replicas[index])
        went[index] += 1
    return went


print("counted from dispatch:     ", burst(LeastLoaded()))
print("counted from a first token:", burst(CountsLate()))

# %% [markdown] lang="en"
# ## To the warm one, unless it is busy
#
# **Why.** A prompt of 2,000 tokens of rules and 60 of a question: the replica that has the rules
# computes 60 tokens, any other 2,060. But the most popular rules draw everybody to one replica, and
# a queue is no better than a prefill. So a warm replica may be ahead of the least loaded, by so
# much and no more.
#
# **Shapes and invariants.** `self.longest(request, names)` gives the names, of those that you
# pass, which have the longest known beginning. `self.others` is a `LeastLoaded`, and raises
# `NoReplica` where nobody is healthy. `most_ahead` is in tokens, as `num_tokens` of a replica is.
# Only healthy replicas count, also as the one to compare with.

# %% [markdown] lang="ko" of="0c0e02df"
# ## 따뜻한 복제본으로, 붐비지 않는다면
#
# **왜.** 프롬프트에 규칙 2,000토큰과 질문 60토큰이 있습니다. 규칙을 가진 복제본은 60토큰을, 다른
# 복제본은 2,060토큰을 계산합니다. 하지만 가장 인기 있는 규칙은 모두를 한 복제본으로 끌어들이고, 줄은
# 프리필보다 나을 것이 없습니다. 그래서 따뜻한 복제본은 가장 한가한 것보다 정해진 만큼만 앞설 수 있습니다.
#
# **모양과 불변 조건.** `self.longest(request, names)`는 건넨 이름 가운데, 알려진 시작 부분이 가장 긴
# 것들의 이름을 줍니다. `self.others`는 `LeastLoaded`이고, 정상인 것이 없으면 `NoReplica`를 냅니다.
# `most_ahead`는 복제본의 `num_tokens`처럼 토큰 수입니다. 비교 상대까지 포함해 정상인 복제본만 셉니다.

# %% show="labkit.fleet.routing:PrefixAware"

# %% show="labkit.fleet.routing:PrefixAware.longest"

# %% exercise="09.3"

# %% tags=["nbval-ignore-output"]
PrefixAware = use("09.3")

# %% [markdown] lang="en"
# ## Experiment B: the cache and the crowd
#
# 64 replicas (simulated: the real schedulers, block pools and routers, on *modelled* steps of an
# 8-billion-parameter model on H100s). 2,000 requests, 800 a second; each begins with one of 256
# texts of 2,048 tokens, the n-th 1/n as popular as the first, and ends with 64 tokens of its own. A
# replica has room for 24 such texts.
#
# **Predict.** Least loaded finds a good quarter of all prompt tokens in a cache. How many percent
# does prefix-aware routing find?

# %% [markdown] lang="ko" of="b697b144"
# ## 실험 B: 캐시와 군중
#
# 복제본 64개입니다(시뮬레이션. 진짜 스케줄러와 블록 풀과 라우터, 단계 시간은 H100 위의 80억 파라미터 모델로
# *모델링*한 값). 초당 800개씩 요청 2,000개가 옵니다. 각 요청은 2,048토큰짜리 텍스트 256개 중 하나로
# 시작하고(n번째의 인기는 첫 번째의 1/n), 자기만의 64토큰으로 끝납니다. 복제본 하나에는 이런 텍스트
# 24개가 들어갑니다.
#
# **예측.** 가장 한가한 곳으로 보내면 프롬프트 토큰의 4분의 1 남짓을 캐시에서 찾습니다. 접두사를 아는
# 라우팅은 몇 퍼센트를 찾을까요?

# %% tags=["nbval-ignore-output"]
predict("09.found", low=20, high=100, unit="% of prompt tokens")

# %%
from labkit.fleet.routing import RoundRobin
from labkit.measure.experiments.fleet_routing import hashes, simulate

routers = {
    "round robin": RoundRobin(),
    "least loaded": LeastLoaded(),
    "prefix, no bound": PrefixAware(hashes=hashes, most_ahead=10**12),
    "prefix aware": PrefixAware(hashes=hashes),
}
simulated = {name: simulate(name, router, rate=800) for name, router in routers.items()}
for name, run in simulated.items():
    print(
        f"modelled, {name:16} {run.hit_rate:4.0%} found, TTFT p50 {1e3 * run.ttft(50):3.0f} ms, "
        f"p99 {1e3 * run.ttft(99):4.0f} ms, busiest replica {max(run.counts(64)):3} requests"
    )

# %% tags=["nbval-ignore-output"]
from labkit.workbook.figures.fleet import policies_figure

policies_figure([*simulated.values()], 64, "modelled")

# %% tags=["nbval-ignore-output"]
compare("09.found", 100 * simulated["prefix aware"].hit_rate, "% of prompt tokens", modelled=True)

# %% [markdown] lang="en"
# **Compare.** Look at two rows. *Prefix, no bound* has the best hit rate of all, and a p99 TTFT
# twenty times that of *prefix aware*: one request in six begins with the most popular text, all
# of them stand in line at one replica, and 63 others watch. The bound gives up one percent of hits:
# when the line gets longer than `most_ahead` (8,192 tokens), the next request computes the text
# elsewhere, once, and from then on there are two that have it. (Why is round robin's p99 below that
# of least loaded here? All requests have the same length; what can taking turns not do wrong then?)
#
# Now measured. Two engines of SmolLM2 here, each with a KV cache for some three of six texts. They
# share this machine's cores, so they run in turn, each on a clock of its own, on which a step takes
# as long as it took.
#
# **Predict.** How many times as many prompt tokens does prefix-aware routing find as round robin?

# %% [markdown] lang="ko" of="ef634e46"
# **비교.** 두 줄을 보세요. *prefix, no bound*는 적중률이 가장 높지만 p99 TTFT는 *prefix aware*의 스무
# 배입니다. 요청 여섯 중 하나가 가장 인기 있는 텍스트로 시작하고, 모두 한 복제본에 줄을 서고, 나머지
# 63개는 구경합니다. 상한은 적중률을 1퍼센트쯤 포기합니다. 줄이 `most_ahead`(8,192토큰)보다 길어지면 다음
# 요청은 다른 곳에서 텍스트를 한 번 계산하고, 그때부터는 가진 복제본이 둘입니다. (여기서 라운드 로빈의 p99가
# least loaded보다 낮은 까닭은 무엇일까요? 요청의 길이가 모두 같습니다. 그럴 때 차례로 보내면 무엇이 잘못될 수
# 없을까요?)
#
# 이제 재 봅니다. 여기 있는 SmolLM2 엔진 둘이고, 각 KV 캐시에는 텍스트 여섯 중 셋쯤 들어갑니다. 이 장비의
# 코어를 함께 쓰므로 번갈아 실행하되, 저마다 자기 시계를 갖고 단계는 실제로 걸린 만큼 걸린 것으로 합니다.
#
# **예측.** 접두사를 아는 라우팅은 라운드 로빈보다 프롬프트 토큰을 몇 배 많이 찾을까요?

# %% tags=["nbval-ignore-output"]
predict("09.here", low=0.5, high=5, unit="times as many")

# %% tags=["nbval-ignore-output"]
from labkit import rungs
from labkit.measure.experiments.fleet_routing import cold_seconds, prefix_heavy, serve
from labkit.workbook.figures.fleet import replicas_figure


def two_engines():
    return [rungs.make("continuous", smol, num_blocks=40) for _ in range(2)]


cold = cold_seconds(two_engines()[0], num_tokens=168)
arrivals = prefix_heavy(24, 0.8 / cold, 6, 160, 8, 2, seed=2, favourite=0)
here = {}
for name, router in {
    "round robin": RoundRobin(),
    "least loaded": LeastLoaded(),
    "prefix aware": PrefixAware(hashes=hashes, most_ahead=600),
}.items():
    run = here[name] = serve(name, router, two_engines(), arrivals)
    print(
        f"{name:12} {run.hit_rate:4.0%} of prompt tokens found, TTFT p50 {run.ttft(50):.2f} s, "
        f"p99 {run.ttft(99):.2f} s (measured; a cold prompt takes {cold:.2f} s)"
    )
replicas_figure([*here.values()], 2, "measured")

# %% tags=["nbval-ignore-output"]
more = here["prefix aware"].hit_rate / here["round robin"].hit_rate
compare("09.here", more, "times as many")

# %% [markdown] lang="en"
# In the picture each colour is a text. Round robin spreads all six over both replicas, where three
# have room: they chase each other out. Prefix-aware routing settles into three here and three
# there, and after six hollow marks all are filled.
#
# ## Leave it alone, and try again
#
# **Why.** A replica that is dead refuses connections, which takes a millisecond. One that *hangs*
# accepts them and never answers: each request sent there waits for a time-out. And least loaded or
# round robin go on sending.
#
# **Shapes and invariants.** A circuit breaker (Nygard, *Release It!*, 2007) counts failures in a
# row. *Closed*: everybody goes. *Open*: nobody does, for a cool-down. *Half-open*: the cool-down is
# over, and one request, the probe, finds out. `opened_at` is None while it is closed; `cooldown_s`
# has doubled already if the last probe failed. `allows` is asked for a request that will be sent,
# so it notes the probe in `is_probing`.

# %% [markdown] lang="ko" of="8234c45e"
# 그림에서 색 하나가 텍스트 하나입니다. 라운드 로빈은 여섯을 두 복제본에 다 뿌리는데 자리는 셋뿐이라 서로
# 쫓아냅니다. 접두사를 아는 라우팅은 이쪽에 셋, 저쪽에 셋으로 자리를 잡고, 속이 빈 표시 여섯 개 뒤로는 모두
# 채워집니다.
#
# ## 내버려 두었다가 다시 시도하기
#
# **왜.** 죽은 복제본은 연결을 거부하고, 그것은 1밀리초면 압니다. *멈춘* 복제본은 연결을 받아 놓고
# 대답하지 않습니다. 그리로 간 요청은 저마다 타임아웃을 기다립니다. 라운드 로빈도 가장 한가한 곳 고르기도
# 계속 보냅니다.
#
# **모양과 불변 조건.** 차단기(circuit breaker, Nygard, *Release It!*, 2007)는 연속 실패를 셉니다. *닫힘*:
# 모두 갑니다. *열림*: 대기 시간 동안 아무도 가지 않습니다. *half-open*: 대기가 끝났고, 요청 하나, 곧
# 탐침(probe)이 알아봅니다. 닫혀 있으면 `opened_at`은 None입니다. 지난 탐침이 실패했다면 `cooldown_s`는 이미
# 두 배입니다. `allows`는 실제로 보낼 요청에 대해서만 물으므로, 탐침을 `is_probing`에 적습니다.

# %% show="labkit.fleet.breaker:Breaker"

# %% show="labkit.fleet.breaker:Breaker.failed"

# %% exercise="09.4"

# %% tags=["nbval-ignore-output"]
Breaker = use("09.4")

# %% [markdown] lang="en"
# ## Experiment C: a replica that hangs
#
# Virtual clock, four replicas in turn, a request every quarter of a second. Replica 0 hangs from
# 5 to 20 s. No first byte within 2 s: the request is sent to another one. (That is safe: its client
# has nothing yet. After the first byte it would not be.)
#
# **Predict.** Without a breaker 20 requests wait for a time-out. How many do with one?

# %% [markdown] lang="ko" of="097c2573"
# ## 실험 C: 멈춘 복제본
#
# 가상 시계, 복제본 넷을 차례로, 0.25초마다 요청 하나. 복제본 0이 5초에서 20초까지 멈춥니다. 2초 안에 첫
# 바이트가 없으면 다른 복제본으로 보냅니다. (클라이언트가 아직 아무것도 받지 않았으니 안전합니다. 첫 바이트
# 뒤라면 그렇지 않습니다.)
#
# **예측.** 차단기가 없으면 요청 20개가 타임아웃을 기다립니다. 있으면 몇 개일까요?

# %% tags=["nbval-ignore-output"]
predict("09.hangs", low=0, high=20, unit="requests", step=1)

# %%
from labkit.measure.experiments.fleet_hangs import AlwaysClosed, one_hangs

hanging = {"every replica in turn": one_hangs(AlwaysClosed), "with a breaker": one_hangs(Breaker)}
for name, asked in hanging.items():
    slow = [one for one in asked if len(one.tried) > 1]
    back = next(one.at for one in asked if one.at >= 20 and one.tried == [0])
    print(f"{name:22} {len(slow):2} of {len(asked)} waited for a time-out, the last at", end=" ")
    print(f"{slow[-1].at:g} s; replica 0 answers again from {back:g} s on")

# %% tags=["nbval-ignore-output"]
from labkit.workbook.figures.fleet import hang_figure

hang_figure(hanging)

# %% tags=["nbval-ignore-output"]
slow = [one for one in hanging["with a breaker"] if len(one.tried) > 1]
compare("09.hangs", len(slow), "requests", modelled=True)

# %% [markdown] lang="en"
# **Compare.** Five were on their way before three time-outs in a row opened the breaker, at 9 s.
# After that only the probes wait, at ever longer distances. The price is on the other
# side: the replica is well at 20 s, and used again ten seconds later. Health checks beside the
# breaker (labkit's router has both) pay that price with requests that nobody waits for.
#
# ## Sessions stay where they are
#
# **Why.** A chat sends its whole history with each turn. Whoever answered the last turn has it in
# the cache; so the router needs no tree of prefixes, only the session's name. `hash % n` would do,
# until n changes: then nearly every session moves, and all caches are cold at once, on the very day
# that a replica is missing.
#
# **Shapes and invariants.** Rendezvous hashing (Thaler and Ravishankar, 1998): every pair of
# session and replica has a score, the highest wins. A lost replica takes only its own sessions
# along, each to its own second choice; when it comes back they return. `self._best(key, indices)`
# gives the one with the highest score.

# %% [markdown] lang="ko" of="dde853aa"
# **비교.** 다섯은 타임아웃이 세 번 이어져 9초에 차단기가 열리기 전에 이미 떠난 요청입니다. 그 뒤로는
# 탐침만, 점점 뜸하게 기다립니다. 값은 반대쪽에서 치릅니다. 복제본은 20초에 나았지만 10초쯤 뒤에야 다시
# 쓰입니다. 차단기와 나란히 헬스 체크를 두면(labkit의 라우터에는 둘 다 있습니다) 아무도
# 기다리지 않는 요청으로 그 값을 치릅니다.
#
# ## 세션은 제자리에 머문다
#
# **왜.** 채팅은 턴마다 지난 대화를 모두 보냅니다. 지난 턴에 대답한 복제본의 캐시에 그것이 있으므로,
# 라우터는 접두사 트리 없이 세션의 이름만 알면 됩니다. `hash % n`으로 충분합니다. n이 바뀌기 전까지는요. n이
# 바뀌면 거의 모든 세션이 옮기고 캐시가 한꺼번에 차가워집니다. 하필 복제본 하나가 없는 날에 말입니다.
#
# **모양과 불변 조건.** 랑데부 해싱(rendezvous hashing, Thaler와 Ravishankar, 1998): 세션과 복제본의 쌍마다
# 점수가 있고, 가장 높은 것이 이깁니다. 잃어버린 복제본은 자기 세션만 데려가고, 그 세션들은 저마다 두 번째로
# 높은 곳으로 갔다가 복제본이 돌아오면 돌아옵니다. `self._best(key, indices)`가 점수가 가장 높은 것을
# 줍니다.

# %% show="labkit.fleet.routing:Session"

# %% show="labkit.fleet.routing:Session._best"

# %% exercise="09.5"

# %% tags=["nbval-ignore-output"]
Session = use("09.5")

# %% [markdown] lang="en"
# At work: 48 sessions on five replicas, and replica 1 dies. Once with `hash % n`, once with yours.

# %% [markdown] lang="ko" of="524e19bc"
# 동작을 봅시다. 세션 48개가 복제본 다섯에 있고, 복제본 1이 죽습니다. 한 번은 `hash % n`으로, 한 번은
# 여러분의 것으로.

# %%
from labkit.fleet.routing import number_of

names = [f"session-{number}" for number in range(48)]
five, router = [Replica(f"r{i}") for i in range(5)], Session()


def where():
    turns = [SimpleNamespace(tenant=name, prompt_token_ids=[1], max_tokens=1) for name in names]
    return [router.choose(turn, five) for turn in turns]


def by_modulo(indices):
    return [indices[number_of(name) % len(indices)] for name in names]


before, five[1].healthy = where(), False
moves = {
    "hash % n": (by_modulo([0, 1, 2, 3, 4]), by_modulo([0, 2, 3, 4])),
    "highest score": (before, where()),
}
for name, (then, now) in moves.items():
    moved = [pair for pair in zip(then, now, strict=True) if pair[0] != pair[1]]
    needed = sum(a == 1 for a, _ in moved)
    print(f"{name:14} {len(moved)} of 48 sessions move, {needed} of them had to")

# %% tags=["nbval-ignore-output"]
from labkit.workbook.figures.fleet import sessions_figure

sessions_figure(moves, 5, lost=1)

# %% [markdown] lang="en"
# What it doesn't do: look at loads. A session with long turns keeps its replica busy, and another
# one's neighbours pay. Prefix-aware routing with a bound finds sessions too, since turns begin
# alike; it needs more memory for its notes, and the text.
#
# ## Experiment D: replicas on Ray Serve
#
# Real processes now. `serve --replicas 2` starts a small Ray cluster of its own, with labkit's
# engine in each replica, and a request router of Ray Serve that asks the very `PrefixAware` above.
# Sixteen requests on four subjects, four at a time; then six long streams, and one replica is
# killed. Where Ray is installed this runs now; elsewhere you see the stored result, and
# `on_ray(install=True)` in a cell of your own installs it first (104 MB to download).

# %% [markdown] lang="ko" of="32101345"
# 하지 않는 일이 있습니다. 부하를 보지 않습니다. 턴이 긴 세션은 복제본을 바쁘게 하고, 그곳의 이웃이 값을
# 치릅니다. 상한이 있는 접두사 라우팅도 턴이 똑같이 시작하므로 세션을 찾아냅니다. 대신 기록에 메모리가 더
# 들고, 텍스트가 필요합니다.
#
# ## 실험 D: Ray Serve 위의 복제본
#
# 이제 진짜 프로세스입니다. `serve --replicas 2`는 작은 Ray 클러스터를 따로 띄우고, 복제본마다 labkit의
# 엔진을 둡니다. Ray Serve의 요청 라우터가 바로 위의 `PrefixAware`에게 묻습니다. 네 가지 주제의 요청
# 열여섯 개를 넷씩 보내고, 다음으로 긴 스트림 여섯이 흐르는 동안 복제본 하나를 죽입니다. Ray가 설치되어
# 있으면 지금 실행하고, 아니면 저장된 결과를 보입니다. 새 셀에서 `on_ray(install=True)`를 실행하면 먼저
# 설치합니다(다운로드 104MB).

# %% tags=["nbval-ignore-output"]
from labkit.measure.experiments.fleet_replicas import beside, on_ray

ray = beside(on_ray)
print("stored on" if ray["stored"] else "measured here on", ray["date"], "by", ray["command"])
if ray["stored"]:
    print("not measured here:", ray["why"])
print(f"ready after {ray['seconds_until_ready']:.0f} s")
replicas = sorted({replica for _, replica in ray["went"]})
for subject in sorted({subject for subject, _ in ray["went"]}):
    went = [replicas.index(replica) for name, replica in ray["went"] if name == subject]
    print(f"{subject}: replica", *went)
for number, ends in enumerate(ray["killed"].values()):
    print(f"streams of replica {number}: {', '.join(ends)}")

# %% [markdown] lang="en"
# Every subject stays where it was computed first. And of the six streams those of the killed
# replica end with an error event, which tells the client; the others go on. No router can save a
# stream that has begun, without computing it again from what was said. What it owes is the truth,
# at once.
#
# ## Experiment E: a real Triton Inference Server
#
# (The server, not the kernel language of notebook 05.) It serves models of any kind, from a
# *repository* of folders with a `config.pbtxt` each. Its *dynamic batcher* gathers requests that
# wait into a batch, hands it to the model, and hands the answers back together. For images that is
# ideal. For text it is 02's static batch: the batch lasts as long as its longest answer. So the
# engine itself also runs in it as a *decoupled* model, which answers as it likes: then the server
# is the front, and the batching is labkit's.
#
# Where it is installed (`python3 -m labkit doctor --fix triton-server`, into an environment of its
# own) eight requests are measured now, on this processor; elsewhere you see the stored result. A
# second table is from a paced A100 (its step times *modelled*, everything else real), where a step
# is so short that the batching shows: 72 requests, 12 a second.

# %% [markdown] lang="ko" of="dc5e3a63"
# 주제마다 처음 계산한 곳에 머뭅니다. 스트림 여섯 중 죽은 복제본의 것은 오류 이벤트로 끝나 클라이언트에게
# 알리고, 나머지는 이어집니다. 이미 시작한 스트림은, 말한 데까지 다시 계산하지 않는 한 어느 라우터도 살릴 수
# 없습니다. 라우터가 빚진 것은 곧바로 사실을 알리는 일입니다.
#
# ## 실험 E: 진짜 Triton Inference Server
#
# (노트북 05의 커널 언어가 아니라 서버입니다.) 폴더마다 `config.pbtxt`가 있는 *저장소*(model repository)에서
# 온갖 종류의 모델을 서빙합니다. *dynamic batcher*는 기다리는 요청을 모아 배치로 모델에 건네고, 답을 한꺼번에
# 돌려줍니다. 이미지라면 이상적입니다. 텍스트라면 02의 정적 배치입니다. 배치는 가장 긴 답만큼 걸립니다. 그래서
# 엔진 자체도 그 안에서 *decoupled* 모델로 돌려 봅니다. 원하는 때에 답하는 모델입니다. 그러면 서버는 앞단이고,
# 배치는 labkit이 합니다.
#
# 설치되어 있으면(`python3 -m labkit doctor --fix triton-server`, 전용 환경에 설치됩니다) 지금 이
# 프로세서에서 요청 여덟 개로 재고, 아니면 저장된 결과를 보입니다. 두 번째 표는 paced A100의
# 것입니다(단계 시간은 *모델링*한 값, 나머지는 진짜). 단계가 아주 짧아 배치 방식의 차이가 드러납니다. 요청
# 72개, 초당 12개입니다.

# %% tags=["nbval-ignore-output"]
from labkit.fleet.triton_server import comparison

ways = ("dynamic, streamed", "continuous, streamed")
server = beside(lambda: comparison(num_requests=8, only=ways, loads=False))
card = comparison(stored=True, device="A100:8b")
for found in (server, card):
    kept = "stored" if found["stored"] else "here"
    print(f"{found['label']}, {kept}, {found['date']}: {found['workload']}")
    for row in found["rows"]:
        print(
            f"   {row['server']:24} {row['batching']:21} {row['tokens_per_s']:6.1f} tokens/s, "
            f"TTFT p50 {row['ttft_p50_s']:5.2f} s, p99 {row['ttft_p99_s']:5.2f} s"
        )

# %% tags=["nbval-ignore-output"]
loads = comparison(stored=True)
print(f"stored, {loads['date']}, a machine with {loads['machine']['cores']} cores")
for row in loads["models"]:
    print(
        f"{row['who']:24} {row['model']:22} loaded in {row['load_s']:5.1f} s, unloaded in "
        f"{row['unload_s']:4.1f} s, {row['num_bytes'] / 1e6:5,.0f} MB held, "
        f"{row['freed_bytes'] / 1e6:5,.0f} MB freed"
    )

# %% [markdown] lang="en"
# Read TTFT against the batching. With the dynamic batcher an answer, streamed or not,
# belongs to a batch that nobody can join; the first token of whoever comes a moment later waits for
# the end of it. As a decoupled model the same engine lets everybody in at every step.
#
# In the second table the whole process is counted, Python and torch included; experiment A counted
# weights and KV cache. int8 takes less memory and longer to load, because it is made from the float
# weights at each load.
#
# Models come and go by order: `POST v2/repository/models/NAME/load` and `/unload`, the server's
# *explicit* mode. It evicts nothing by itself. Who orders must know who still uses what; issue 3583
# asks for a counter of uses, after one client unloaded the model that another had just loaded. It
# is the pin of exercise 09.2.
#
# ## What breaks
#
# **1. The counts are set to zero.** The bug from the top of this page: as in experiment B, but
# every 20 requests all loads begin at 0 again while the notes of beginnings stay.

# %% [markdown] lang="ko" of="87ee42f7"
# TTFT를 배치 방식과 견주어 보세요. dynamic batcher에서 답은 스트리밍이든 아니든, 아무도 끼어들 수 없는
# 배치에 속합니다. 조금 늦게 온 요청의 첫 토큰은 그 배치가 끝나기를 기다립니다. decoupled 모델이면 같은
# 엔진이 단계마다 누구든 들입니다.
#
# 둘째 표는 Python과 torch를 포함한 프로세스 전체를, 실험 A는 가중치와 KV 캐시만 센 것입니다. int8은 메모리를
# 덜 쓰지만, 불러올 때마다 부동소수점 가중치에서 만들기 때문에 더 오래 걸립니다.
#
# 모델은 명령에 따라 들어오고 나갑니다. `POST v2/repository/models/NAME/load`와 `/unload`, 이 서버의
# *explicit* 모드입니다. 스스로 내보내는 일은 없습니다. 명령하는 쪽이 누가 무엇을 아직 쓰는지 알아야 합니다.
# 한 클라이언트가 다른 클라이언트가 막 불러온 모델을 내린 뒤, 이슈 3583은 사용 횟수를 세어 달라고 합니다.
# 실습 09.2의 pin이 바로 그것입니다.
#
# ## 무엇이 깨지는가
#
# **1. 수를 0으로 되돌린다.** 맨 위에서 본 버그입니다. 실험 B와 같되 요청 20개마다 모든 부하가 0에서 다시
# 시작하고, 시작 부분에 대한 기록은 남습니다.

# %%
from labkit.measure.experiments.fleet_routing import Forgets

for name, router in {"keeps count": PrefixAware, "forgets": Forgets}.items():
    run = simulate(name, router(hashes=hashes), rate=800)
    print(
        f"modelled, {name:12} busiest replica {max(run.counts(64)):3} of 2,000 requests, "
        f"p99 TTFT {1e3 * run.ttft(99):4.0f} ms"
    )

# %% [markdown] lang="en"
# **2. The pin comes after the wait.** Between the end of a load and the turn of whoever waits for
# it, others run. Room for one model; ann asks for A, bob for B. `Late` pins after the wait: A is
# loaded, is idle for an instant, and leaves for B before ann has had it. (`Late` is exercise 09.2
# with two lines in another order.)

# %% [markdown] lang="ko" of="6d9aae95"
# **2. 기다린 뒤에 고정한다.** 불러오기가 끝나고 기다리던 호출자의 차례가 오기까지 다른 이들이 실행됩니다.
# 자리는 하나, ann은 A를, bob은 B를 찾습니다. `Late`는 기다린 뒤에 고정합니다. A는 불러와지자마자 잠깐 쉬는
# 상태가 되고, ann이 받기도 전에 B에게 자리를 내줍니다. (`Late`는 실습 09.2에서 두 줄의 순서를 바꾼
# 것입니다.)

# %%
from labkit.fleet import model_cache as labkit_cache


class Late(labkit_cache.ModelCache):
    async def acquire(self, name):
        entry = self.shelf.entries.get(name) or self._begin(name)
        await asyncio.shield(entry.task)
        entry.num_pins += 1
        return entry


async def two_ask(kind):
    gone, first = [], asyncio.Event()

    async def make_slowly(name):
        if name == "A":
            await first.wait()  # until bob waits too
        return name

    loader = Stays(lambda name: 60, make_slowly)
    unload = loader.unload

    async def noted(entry):
        gone.append(entry.name)
        await unload(entry)

    loader.unload = noted
    cache = kind(100, loader)
    ann = asyncio.create_task(cache.acquire("A"))
    await asyncio.sleep(0.05)
    bob = asyncio.create_task(labkit_cache.ModelCache.acquire(cache, "B"))  # he pins in time
    await asyncio.sleep(0.05)
    first.set()
    entry = await ann
    await asyncio.sleep(0.05)
    told = f"ann has {entry.name}; unloaded while she uses it: {gone or 'nothing'}"
    cache.release(entry)
    cache.release(await bob)
    await cache.close()
    return told


for kind in (Late, labkit_cache.ModelCache):
    print(f"{kind.__name__:10} {run_beside(two_ask(kind))}")

# %% [markdown] lang="en"
# ## Serve it
#
# Several models behind one address, loaded when they are asked for:
#
# ```
# python3 -m labkit serve --model smollm2-135m --model small=tiny --model-memory 2GB
# ```
#
# Replicas anywhere, and a router in front of them; any OpenAI endpoint will do, vLLM's too:
#
# ```
# python3 -m labkit serve --port 8001        # one terminal each
# python3 -m labkit serve --port 8002
# python3 -m labkit route --policy prefix \
#   --backend http://127.0.0.1:8001 --backend http://127.0.0.1:8002
# ```
#
# Replicas on Ray Serve, more of them under load: `python3 -m labkit serve --replicas 1
# --max-replicas 4`. All of them answer on `/v1/chat/completions`, `/v1/requests` and `/metrics`.

# %% [markdown] lang="ko" of="72924e24"
# ## 서빙하기
#
# 주소 하나 뒤에 여러 모델을 두고, 요청받을 때 불러옵니다.
#
# ```
# python3 -m labkit serve --model smollm2-135m --model small=tiny --model-memory 2GB
# ```
#
# 복제본은 어디에 있어도 되고, 그 앞에 라우터를 둡니다. vLLM을 포함해 OpenAI 엔드포인트면 무엇이든 됩니다.
#
# ```
# python3 -m labkit serve --port 8001        # 터미널을 하나씩
# python3 -m labkit serve --port 8002
# python3 -m labkit route --policy prefix \
#   --backend http://127.0.0.1:8001 --backend http://127.0.0.1:8002
# ```
#
# Ray Serve 위의 복제본은 부하에 따라 늘어납니다: `python3 -m labkit serve --replicas 1
# --max-replicas 4`. 모두 `/v1/chat/completions`, `/v1/requests`, `/metrics`로 대답합니다.

# %% [markdown] lang="en"
# ## In vLLM and Triton Inference Server
#
# - **Models.** A vLLM server has one model (and LoRA adapters on it); several are several servers
#   behind a router. Triton Inference Server has many, in three control modes: `none` (all, at
#   start), `poll`, and `explicit` (load and unload by API). None of them evicts: issue 4188 asks
#   for it. Ollama and llama.cpp's server in router mode load on demand; llama.cpp counts models
#   (`--models-max`), and two requests for two cold models could leave one in line for ever (issue
#   28443). Ray Serve's `@serve.multiplexed` counts them too (`max_num_models_per_replica`), least
#   recently used first, under one lock for all loads of a replica (issue 65346 would like one per
#   model).
# - **Routing.** vLLM's production stack has `roundrobin`, `session` (consistent hashing; without a
#   session id the server with the fewest requests a second), `prefixaware`, and `kvaware`, which
#   asks LMCache instead of its own notes; `loadaware` (pull request 1035) weighs match against
#   load. vLLM's Rust router is a fork of SGLang's, and both have `cache_aware` with two thresholds
#   in place of `most_ahead`.
# - **Ray Serve LLM** has power of two choices by default, `PrefixCacheAffinityRouter` (a tree of
#   texts; at `imbalanced_threshold` it turns to loads), and `KVAwareRouter`, which is told by vLLM
#   itself what is in which cache. That is the part that labkit lacks: a replica evicts, and the
#   router doesn't hear of it.
# - **Batching.** Triton Inference Server's dynamic batcher has `preferred_batch_size`,
#   `max_queue_delay_microseconds`, priorities and queue policies. For language models its backends
#   (TensorRT-LLM, vLLM) bring their own *in-flight* batching, as decoupled models.
# - **Breakers** stand in vLLM's and SGLang's routers. In SGLang's issue 31206 a half-open one never
#   closed again, and health checks went on saying that all was well.
#
# Next: notebook 10, what all of this costs. First, your progress.

# %% [markdown] lang="ko" of="b8679570"
# ## vLLM과 Triton Inference Server에서는
#
# - **모델.** vLLM 서버에는 모델이 하나(와 그 위의 LoRA 어댑터) 있습니다. 여럿이면 서버를 여럿 두고 라우터를
#   앞세웁니다. Triton Inference Server에는 여럿이 있고 제어 모드가 셋입니다. `none`(시작할 때 모두), `poll`,
#   `explicit`(API로 불러오고 내림). 스스로 내보내는 모드는 없으며 이슈 4188이 요청합니다. Ollama와
#   llama.cpp 서버의 라우터 모드는 요청받을 때 불러옵니다. llama.cpp는 모델을 개수로 세고(`--models-max`), 차가운
#   두 모델에 요청이 하나씩 오면 하나가 영영 줄에 남을 수 있었습니다(이슈 28443). Ray Serve의
#   `@serve.multiplexed`도 개수를 세고(`max_num_models_per_replica`) 가장 오래 쓰이지 않은 것부터 내보내며,
#   복제본의 모든 불러오기에 락이 하나입니다(이슈 65346은 모델마다 하나를 원합니다).
# - **라우팅.** vLLM production stack에는 `roundrobin`, `session`(일관된 해싱. 세션 id가 없으면 초당 요청이 가장
#   적은 서버), `prefixaware`, 그리고 자기 기록 대신 LMCache에게 묻는 `kvaware`가 있습니다. `loadaware`(PR
#   1035)는 일치와 부하를 저울질합니다. Rust로 쓴 vLLM router는 SGLang 라우터에서 갈라져 나왔고, 둘 다
#   `cache_aware`가 있으며 `most_ahead` 대신 임계값이 둘입니다.
# - **Ray Serve LLM**의 기본은 둘 중 나은 쪽 고르기(power of two choices)입니다. `PrefixCacheAffinityRouter`는
#   텍스트 트리를 쓰고 `imbalanced_threshold`를 넘으면 부하를 봅니다. `KVAwareRouter`는 어느 캐시에 무엇이
#   있는지 vLLM에게서 직접 듣습니다. labkit에 없는 부분입니다. 복제본이 무언가를 내보내도 라우터는 듣지
#   못합니다.
# - **배치.** Triton Inference Server의 dynamic batcher에는 `preferred_batch_size`,
#   `max_queue_delay_microseconds`, 우선순위, 큐 정책이 있습니다. 언어 모델용 백엔드(TensorRT-LLM, vLLM)는
#   decoupled 모델로서 자기만의 *in-flight* 배치를 합니다.
# - **차단기**는 vLLM과 SGLang의 라우터에 있습니다. SGLang의 이슈 31206에서는 half-open이 된 차단기가 다시
#   닫히지 않았고, 헬스 체크는 계속 이상이 없다고 했습니다.
#
# 다음은 이 모든 것의 비용을 따지는 노트북 10입니다. 먼저 진행 상황을 확인하세요.

# %% tags=["nbval-ignore-output"]
progress()
