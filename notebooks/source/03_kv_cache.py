# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] lang="en"
# # 03 · The KV cache
#
# In June 2026 ONNX, and ONNX Runtime, which runs models in many servers, set out to repair their
# attention operator (onnx/onnx, pull request 8068; microsoft/onnxruntime, 28958). On one of the paths
# for a KV cache its causal mask stood in the wrong corner. A prompt was computed right, and
# so was the first token of an answer. From the second on a new token saw the *first* key and no
# other. Nothing crashes when that happens; the model says one thing for ever. You will see it do so,
# and in 03.2 you may well write it yourself.
#
# A KV cache is one of the largest steps up this ladder, and a source of bugs that keep quiet. This
# notebook builds one.
#
# **After this notebook you can**
#
# - say what is kept between steps (keys and values, not attention results) and why that suffices;
# - write prefill and decode as one thing: computed tokens catch up with known tokens;
# - write attention that reads a cache, with its mask in the right corner;
# - compute the bytes of a token, and how many sequences fit beside a model;
# - answer with numbers of your own machine: **6. Does `use_cache=False` distort a benchmark?** and
#   the first half of **2. Does splitting CPU and GPU work always raise GPU utilization?**

# %% [markdown] lang="ko" of="9a0d8cf7"
# # 03 · KV 캐시
#
# 2026년 6월, ONNX와, 많은 서버에서 모델을 돌리는 ONNX Runtime이 어텐션 연산자를 고치기 시작했습니다 (onnx/onnx pull request
# 8068, microsoft/onnxruntime 28958). KV 캐시를 쓰는 경로 하나에서 인과 마스크(causal mask)가 반대쪽 모서리에 맞춰져
# 있었습니다. 프롬프트는 제대로 계산되고 답의 첫 토큰도 맞습니다. 그런데 두 번째 토큰부터 새 토큰은 *첫 번째* 키 하나만 봅니다. 이런 일이 생겨도 아무것도
# 죽지 않습니다. 모델이 한 가지 말만 끝없이 되풀이할 뿐입니다. 그 모습을 직접 보게 되고, 03.2에서는 여러분도 똑같이 쓰기 쉽습니다.
#
# KV 캐시는 이 사다리에서 가장 큰 걸음 중 하나이고, 조용한 버그가 나오는 곳입니다. 이 노트북에서 캐시를
# 만듭니다.
#
# **이 노트북을 마치면**
#
# - 단계 사이에 무엇을 남기는지(어텐션 결과가 아니라 키와 값), 왜 그것으로 충분한지 말할 수 있습니다.
# - 프리필(prefill)과 디코드(decode)를 하나의 일로 작성할 수 있습니다. 계산된 토큰이 알려진 토큰을
#   따라잡는 일입니다.
# - 캐시를 읽는 어텐션을, 마스크를 올바른 모서리에 맞춰 작성할 수 있습니다.
# - 토큰 하나의 바이트와, 모델 옆에 시퀀스가 몇 개 들어가는지 계산할 수 있습니다.
# - 직접 잰 숫자로 답할 수 있습니다. **6. `use_cache=False`는 벤치마크를 왜곡하는가?** 그리고
#   **2. CPU와 GPU의 일을 나누면 항상 GPU 이용률이 올라가는가?** 의 앞 절반입니다.

# %% header minutes=10

# %% [markdown] lang="en"
# ## If you start here
#
# Three minutes of what came before. **01** turned the token loop inside out: an *engine* takes
# requests, and every call of `step()` gives *events* back, one token for each request that is being
# served. **02** served four requests in one pass: short ones are padded on the left, and a batch
# ends with its longest request. Neither keeps anything between steps:
#
# ```text
#   step 1   [ p p p p ]                 4 tokens through the model → token 5
#   step 2   [ p p p p o ]               5 tokens                   → token 6
#   step 3   [ p p p p o o ]             6 tokens                   → token 7
#
#   with a cache (this notebook)
#   step 1   [ p p p p ]                 4 tokens                   → token 5      prefill
#   step 2             [ o ]             1 token, 4 read from cache → token 6      decode
#   step 3               [ o ]           1 token, 5 read from cache → token 7      decode
# ```
#
# From here on the model is labkit's own decoder, not that of `transformers`: it takes the new
# tokens of all requests in one row, `[T]`, without padding, and writes keys and values into memory
# that *we* manage. Whatever you have not written yourself, `use(...)` supplies.

# %% [markdown] lang="ko" of="48dad8a7"
# ## 여기서 시작한다면
#
# 앞 내용을 3분 만에 정리합니다. **01**에서는 토큰 루프를 뒤집었습니다. *엔진*이 요청을 받고,
# `step()`을 부를 때마다 *이벤트*가, 처리 중인 요청마다 토큰 하나씩 나옵니다. **02**에서는 요청 넷을
# 순전파(forward pass) 한 번에 처리했습니다. 짧은 것은 왼쪽에 패딩을 넣고, 배치는 가장 긴 요청과 함께
# 끝납니다. 둘 다 단계 사이에 아무것도 남기지 않습니다.
#
# ```text
#   step 1   [ p p p p ]                 4 tokens through the model → token 5
#   step 2   [ p p p p o ]               5 tokens                   → token 6
#   step 3   [ p p p p o o ]             6 tokens                   → token 7
#
#   with a cache (this notebook)
#   step 1   [ p p p p ]                 4 tokens                   → token 5      prefill
#   step 2             [ o ]             1 token, 4 read from cache → token 6      decode
#   step 3               [ o ]           1 token, 5 read from cache → token 7      decode
# ```
#
# 여기부터 모델은 `transformers`가 아니라 labkit의 디코더입니다. 모든 요청의 새 토큰을 패딩 없이 한
# 줄 `[T]`로 받고, *우리가* 관리하는 메모리에 키와 값을 씁니다. 직접 쓰지 않은 것은 `use(...)`가
# 채워 줍니다.

# %% tags=["nbval-ignore-output"]
from labkit.model import best_device, load, load_decoder

device = best_device()
tiny = load_decoder("tiny", device=device)  # random weights, the same on every machine
smol = load_decoder("smollm2-135m", device=device)

# %% [markdown] lang="en"
# ## What is kept, and why it suffices
#
# In every layer a token at position i makes three vectors: a *query*, a *key* and a *value*. Row i
# of attention weighs the values of the positions up to i by how well their keys fit query i:
#
# ```text
#   out[i] = softmax(q[i] · k[0..i] / √head_dim) · v[0..i]
# ```
#
# Read off what a *new* row needs. Its own query, which is new. And keys and values of all rows up
# to its own. So:
#
# - **keys and values** of old tokens are read again at every step. They depend on their
#   own token and those before it only; these don't change, so neither do they: keep them;
# - **queries** of old tokens are never needed again: row i is finished;
# - **attention results** of old tokens don't change either, but nobody reads them: they went into
#   the next layer, and what a new token wants of that layer are once more its keys and values.
#
# That is the correction to a phrase one often hears. A KV cache doesn't keep attention results.

# %% [markdown] lang="ko" of="c4c1a61b"
# ## 무엇을 남기고, 왜 그것으로 충분한가
#
# 레이어마다 위치 i의 토큰은 벡터 세 개를 만듭니다. *쿼리*(query), *키*(key), *값*(value)입니다.
# 어텐션의 i번째 행은 i까지의 값들을, 키가 쿼리 i와 얼마나 맞는지에 따라 가중합니다.
#
# ```text
#   out[i] = softmax(q[i] · k[0..i] / √head_dim) · v[0..i]
# ```
#
# *새* 행에 필요한 것을 읽어 보세요. 새로 만든 자신의 쿼리, 그리고 자신까지의 모든 행의 키와 값입니다.
# 따라서
#
# - 옛 토큰의 **키와 값**은 단계마다 다시 읽힙니다. 자기 토큰과 앞의 토큰에만 의존하고, 이들은
#   변하지 않으니 키와 값도 변하지 않습니다. 남깁니다.
# - 옛 토큰의 **쿼리**는 다시 필요하지 않습니다. i번째 행은 이미 끝났습니다.
# - 옛 토큰의 **어텐션 결과**도 변하지 않지만 아무도 읽지 않습니다. 다음 레이어로 들어갔고, 새 토큰이
#   그 레이어에서 원하는 것은 또다시 키와 값입니다.
#
# 흔히 듣는 말을 바로잡으면, KV 캐시는 어텐션 결과를 남기지 않습니다.

# %% tags=["nbval-ignore-output"]
from labkit.workbook.figures.caching import reads_figure

reads_figure(start=4, n=2)

# %% [markdown] lang="en"
# Shapes before words. In each layer the cache holds `[2, kv_heads, tokens, head_dim]`: keys and
# values. `tiny` has 2 layers and 2 kv heads of 16. Below, what a pass over 4 tokens leaves, and
# what a pass over 25 leaves that begin with the same 4.

# %% [markdown] lang="ko" of="7de37a2d"
# 말보다 모양이 먼저입니다. 레이어마다 캐시는 키와 값, `[2, kv_heads, tokens, head_dim]`을 담습니다.
# `tiny`는 레이어 2개, 16차원 kv 헤드 2개입니다. 아래는 토큰 4개의 순전파가 남긴 것과, 같은 4개로
# 시작하는 25개의 순전파가 남긴 것입니다.

# %%
import torch

from labkit.measure.experiments import caching

prompt = tiny.encode_chat("한글")
short = caching.keys_values(tiny.model, prompt[:4])
long = caching.keys_values(tiny.model, prompt)
print("[layers, 2, kv_heads, tokens, head_dim]", list(short.shape), list(long.shape))
print("the first four are the same:", torch.allclose(short, long[..., :4, :], atol=1e-5))

# %% [markdown] lang="en"
# ## Computed tokens catch up with known tokens
#
# With a cache there seem to be two phases, prefill and decode. There is only one rule. A request
# knows `num_tokens` tokens, prompt and output so far; of these, `num_computed_tokens` have their
# keys and values in the cache. Each step moves the second number toward the first:
#
# | | known | computed | to feed |
# | --- | --- | --- | --- |
# | prefill | 25 | 0 | 25 tokens, from position 0 |
# | decode | 26 | 25 | 1 token, at position 25 |
# | second chunk of a long prompt | 25 | 16 | 9 tokens, from position 16 |
# | the cache was lost after 3 outputs | 28 | 0 | 28 tokens, from position 0 |
#
# A token is asked for when the two meet, and then there is one more known. What is fed in a step is
# a *span*:

# %% [markdown] lang="ko" of="c50872db"
# ## 계산된 토큰이 알려진 토큰을 따라잡는다
#
# 캐시가 있으면 프리필과 디코드라는 두 단계가 있는 것처럼 보입니다. 규칙은 하나뿐입니다. 요청은
# 프롬프트와 지금까지의 출력, 토큰 `num_tokens`개를 알고 있고, 그중 `num_computed_tokens`개의 키와
# 값이 캐시에 있습니다. 단계마다 둘째 숫자가 첫째 숫자를 향해 나아갑니다.
#
# | | 알려짐 | 계산됨 | 넣을 것 |
# | --- | --- | --- | --- |
# | 프리필 | 25 | 0 | 위치 0부터 토큰 25개 |
# | 디코드 | 26 | 25 | 위치 25에 토큰 1개 |
# | 긴 프롬프트의 둘째 청크 | 25 | 16 | 위치 16부터 토큰 9개 |
# | 출력 3개 뒤 캐시를 잃음 | 28 | 0 | 위치 0부터 토큰 28개 |
#
# 둘이 만나면 토큰을 묻고, 그러면 알려진 토큰이 하나 늘어납니다. 한 단계에 넣는 것이 *구간*(span)입니다.

# %% show="labkit.model.flat_batch:Span"

# %% exercise="03.1"

# %% [markdown] lang="en"
# `catch_up` is all that a batch with a cache needs: whatever is missing, in one call. Nothing in it
# asks which phase this is.

# %% [markdown] lang="ko" of="a21f5c7d"
# 캐시가 있는 배치에는 `catch_up`이면 충분합니다. 빠진 것이 무엇이든 한 번에 계산합니다. 어느
# 단계인지 묻는 코드는 없습니다.

# %% show="labkit.engine.runner:Runner.catch_up"

# %% [markdown] lang="en"
# At work: the prompt in one piece, then in chunks of 16. Same tokens, and the same as `transformers`
# says with a cache of its own.

# %% [markdown] lang="ko" of="15ae743a"
# 동작을 봅시다. 프롬프트를 통째로, 그다음에는 16개씩 나눠 넣습니다. 토큰은 같고, `transformers`가
# 자체 캐시로 낸 것과도 같습니다.

# %% tags=["nbval-ignore-output"]
span_of = use("03.1")

# %%
from labkit.measure.generation import generate

for chunk in (None, 16):
    tokens, fed = caching.decode(tiny.model, prompt, 8, span_of, chunk)
    first = ", ".join(f"{n} from {start}{' → asks' if asks else ''}" for start, n, asks in fed[:3])
    print(f"{tokens}  fed: {first}, ...")
print(generate(load("tiny", device=device).model, prompt, 8, use_cache=True), " transformers")

# %% [markdown] lang="en"
# ## Attention with a cache
#
# The scores of attention are a table: a row for each query, a column for each key. With a cache the
# rows are fewer than the columns. There are n new queries, at the positions `start` to
# `start + n - 1`, and `start + n` keys. Query i sees up to position `start + i`. Written as a mask
# with 1 for "sees", for 2 new tokens after 3:
#
# ```text
#            right: bottom right             wrong: top left
#            k0  k1  k2  k3  k4              k0  k1  k2  k3  k4
#     q3      1   1   1   1   .               1   .   .   .   .
#     q4      1   1   1   1   1               1   1   .   .   .
# ```
#
# For a square the two are the same, so prefill can't tell them apart. That is how such a bug gets
# through its tests. PyTorch's `scaled_dot_product_attention(..., is_causal=True)` is aligned top
# left, by its documentation; FlashAttention changed to bottom right with version 2.1.
#
# And *grouped-query attention* (GQA): several query heads share one kv head, to keep less.
# SmolLM2-135M has 9 query heads and 3 kv heads, so query heads 0, 1, 2 read kv head 0.

# %% [markdown] lang="ko" of="4070a8b2"
# ## 캐시가 있는 어텐션
#
# 어텐션의 점수는 표입니다. 쿼리마다 한 행, 키마다 한 열입니다. 캐시가 있으면 행이 열보다 적습니다. 새 쿼리 n개는 위치 `start`부터
# `start + n - 1`까지에 있고, 키는 `start + n`개입니다. i번째 쿼리는 위치 `start + i`까지 봅니다. "본다"를 1로 쓴 마스크로
# 나타내면, 캐시된 3개 뒤에 새 토큰이 2개일 때 이렇습니다.
#
# ```text
#            right: bottom right             wrong: top left
#            k0  k1  k2  k3  k4              k0  k1  k2  k3  k4
#     q3      1   1   1   1   .               1   .   .   .   .
#     q4      1   1   1   1   1               1   1   .   .   .
# ```
#
# 정사각형이면 둘이 같아서 프리필로는 구별되지 않습니다. 그래서 이런 버그가 테스트를 통과합니다.
# PyTorch의 `scaled_dot_product_attention(..., is_causal=True)`는 문서에 적힌 대로 왼쪽 위에 맞추고,
# FlashAttention은 2.1 버전에서 오른쪽 아래로 바꿨습니다.
#
# 그리고 *GQA*(grouped-query attention)는 덜 남기기 위해 쿼리 헤드 여럿이 kv 헤드 하나를 나눠 쓰는
# 것입니다. SmolLM2-135M은 쿼리 헤드가 9개, kv 헤드가 3개라서 쿼리 헤드 0, 1, 2가 kv 헤드 0을 읽습니다.

# %% show="labkit.kernels.reference:causal_mask"

# %% exercise="03.2"

# %% [markdown] lang="en"
# Your `attend` in every layer of `tiny`, prompt in one piece and in chunks:

# %% [markdown] lang="ko" of="1c75d6e7"
# 여러분의 `attend`를 `tiny`의 모든 레이어에 넣고, 프롬프트를 통째로, 또 나눠서 돌립니다.

# %% tags=["nbval-ignore-output"]
attend = use("03.2")

# %%
from labkit.model import loading

textbook = loading.load_decoder("tiny", device=device, attention="torch")
textbook.model.attention = caching.attention_by(attend)
for chunk in (None, 16):
    print(caching.decode(textbook.model, prompt, 8, span_of, chunk)[0])

# %% [markdown] lang="en"
# ## Whose row is it?
#
# The simplest memory for a batch of four: one long row each, `[4, max_len]` tokens in every layer.
# Row i belongs to request i of the batch. When the batch has ended the next one gets the rows, and
# **nobody wipes them**: clearing gigabytes takes time, and isn't needed as long as everyone counts
# right. A request reads `num_computed_tokens` positions of its row, so a new owner must begin at 0.

# %% [markdown] lang="ko" of="16a8d9ee"
# ## 누구의 행인가
#
# 네 개짜리 배치에 가장 단순한 메모리는 요청마다 긴 행 하나, 레이어마다 토큰 `[4, max_len]`개입니다.
# i번째 행은 배치의 i번째 요청의 것입니다. 배치가 끝나면 다음 배치가 그 행을 받는데, **아무도 지우지
# 않습니다.** 수 기가바이트를 지우는 데는 시간이 들고, 모두가 제대로 세기만 하면 지울 필요도 없습니다.
# 요청은 자신의 행에서 `num_computed_tokens`개의 자리를 읽으므로, 새 주인은 0에서 시작해야 합니다.

# %% show="labkit.engine.cached:CachedEngine"

# %% exercise="03.3"

# %% tags=["nbval-ignore-output"]
CachedEngine = use("03.3")

# %%
from labkit.engine.request import Request

engine = CachedEngine(tiny.model, tiny.eos_token_ids, batch_size=2, max_model_len=64)
for name in "abc":
    engine.add(Request(name, tiny.encode_chat(name), max_tokens=4, ignore_eos=True))
while engine.has_unfinished():
    events = engine.step()
    rows = {r.request_id: r.block_table for r in engine.batch}
    print({event.request_id: event.token_id for event in events}, "rows:", rows)

# %% [markdown] lang="en"
# ## Experiment A: the same requests, with and without
#
# The study group's short answer to **question 6, does `use_cache=False` distort a benchmark?** is:
# *yes; every step repeats the work of all tokens before. Fine for teaching, wrong for benchmarks.*
# Notebook 01 counted the work. Now you have both engines, and can see what is distorted.
#
# To compare rungs isn't fair to the cache: between notebook 01's engine and this one the decoder
# changed, too. So there is a third: your cached engine, told to forget. One line sets
# `num_computed_tokens = 0` before each step; decoder and kernels stay.
#
# **Predict.** With a cache: how many times longer does a token take after 256 tokens than after 16?

# %% [markdown] lang="ko" of="3de1316f"
# ## 실험 A: 같은 요청, 캐시가 있을 때와 없을 때
#
# **질문 6** “`use_cache=False`는 벤치마크를 왜곡하는가?”에 대한 스터디 그룹의 짧은 답은 *그렇다. 매
# 단계가 앞의 모든 토큰의 일을 되풀이한다. 배우기에는 좋지만 벤치마크로는 부적절하다* 입니다. 노트북
# 01에서는 작업량을 셌습니다. 이제 엔진이 둘 다 있으니 무엇이 왜곡되는지 볼 수 있습니다.
#
# 단(rung)끼리 비교하면 캐시만 비교하는 것이 아닙니다. 노트북 01의 엔진과 이 엔진 사이에 디코더도
# 바뀌었습니다. 그래서 세 번째를 둡니다. 잊어버리라고 시킨 여러분의 캐시 엔진입니다. 한 줄로 단계마다
# `num_computed_tokens = 0`을 넣고, 디코더와 커널은 그대로 둡니다.
#
# **예측.** 캐시가 있으면, 토큰 256개 뒤의 토큰 하나는 16개 뒤의 토큰보다 몇 배 오래 걸릴까요?

# %% tags=["nbval-ignore-output"]
predict("03.itl", low=0.5, high=16, unit="times as long")

# %% [markdown] lang="en"
# **Run.** Two requests of 12 tokens, one after the other, on three engines.

# %% [markdown] lang="ko" of="16eed969"
# **실행.** 12토큰짜리 요청 둘을 하나씩 차례로, 엔진 세 가지에서 돌립니다.

# %% tags=["nbval-ignore-output"]
from labkit.engine.naive import NaiveEngine
from labkit.workbook.figures.caching import served_figure

QUESTIONS = ("Explain in two sentences why the sky is blue.", "Name three things that fly.")


def asked(max_tokens=12):
    return [
        Request(f"q{i}", smol.encode_chat(text), max_tokens, ignore_eos=True)
        for i, text in enumerate(QUESTIONS)
    ]


one_row = {"batch_size": 1, "max_model_len": 256}
naive = NaiveEngine(load("smollm2-135m", device=device).model, smol.eos_token_ids)
forgets = caching.forgetful(CachedEngine)(smol.model, smol.eos_token_ids, **one_row)
keeps = CachedEngine(smol.model, smol.eos_token_ids, **one_row)
for engine in (naive, forgets, keeps):  # the first pass of each pays for what is made once
    caching.serve("warm-up", engine, [Request("w", [1, 2, 3], 2, ignore_eos=True)])
served = [
    caching.serve("rung naive:\ntransformers, no cache", naive, asked()),
    caching.serve("rung cached,\ntold to forget", forgets, asked()),
    caching.serve("rung cached", keeps, asked()),
]
del naive, engine
print("same tokens with and without the cache:", served[1].outputs == served[2].outputs)
served_figure(served)

# %% [markdown] lang="en"
# The middle bar is the honest one: from it to the last is what the *cache* gains, from the first to
# it what another decoder gains. Now the shape: one more token, by how many are known.

# %% [markdown] lang="ko" of="361c52ab"
# 가운데 막대가 정직한 비교입니다. 가운데에서 마지막까지가 *캐시*의 이득이고, 처음에서 가운데까지는
# 다른 디코더의 이득입니다. 이제 모양을 봅시다. 알려진 토큰 수에 따른 토큰 하나의 시간입니다.

# %% tags=["nbval-ignore-output"]
from labkit.workbook.figures.caching import positions_figure

positions = [16, 64, 128, 256]
by_position = {
    "no cache": [caching.step_seconds(smol.model, n, n, repeats=1) for n in positions],
    "cache": [caching.step_seconds(smol.model, n, repeats=4) for n in positions],
}
positions_figure(positions, by_position)

# %% tags=["nbval-ignore-output"]
growth = {name: times[-1] / times[0] for name, times in by_position.items()}
print(f"without a cache: {growth['no cache']:.1f} times as long")
compare("03.itl", growth["cache"], "times as long")

# %% [markdown] lang="en"
# ## Experiment B: the wrong batch size
#
# A benchmark is there to choose something, the batch size for example. Without a cache one sequence
# is already a pass over many rows; a CPU or GPU may be busy computing before a second one joins.
#
# **Predict.** At 32 tokens each and *without* a cache: how many times the tokens/s of a batch of 1
# does a batch of 16 reach?

# %% [markdown] lang="ko" of="a143830c"
# ## 실험 B: 잘못 고른 배치 크기
#
# 벤치마크는 무언가를 고르려고 합니다. 배치 크기가 그 예입니다. 캐시가 없으면 시퀀스 하나만으로도
# 이미 여러 행의 순전파입니다. 둘째가 들어오기도 전에 CPU나 GPU가 계산으로 바쁠 수 있습니다.
#
# **예측.** 저마다 32토큰이고 캐시가 *없을* 때, 배치 16은 배치 1의 몇 배의 tokens/s를 낼까요?

# %% tags=["nbval-ignore-output"]
predict("03.batch", low=1, high=16, unit="times the tokens/s")

# %% tags=["nbval-ignore-output"]
from labkit.workbook.figures.caching import batches_figure

batch_sizes, tokens_each = [1, 2, 4, 8, 16], 32
by_batch = {
    "no cache": [
        caching.step_seconds(smol.model, tokens_each, tokens_each, size, repeats=1)
        for size in batch_sizes
    ],
    "cache": [
        caching.step_seconds(smol.model, tokens_each, 1, size, repeats=4) for size in batch_sizes
    ],
}
batches_figure(batch_sizes, by_batch, tokens_each)

# %% tags=["nbval-ignore-output"]
gains = {name: 16 * times[0] / times[-1] for name, times in by_batch.items()}
print(f"with a cache: {gains['cache']:.1f} times")
compare("03.batch", gains["no cache"], "times the tokens/s")

# %% [markdown] lang="en"
# So the group's answer stands, and is sharpened twice. Not only the level is wrong, the *shape* is:
# ITL grows with the position where it should stay nearly flat. And so is the *decision*: who sweeps
# batch sizes without a cache finds the knee early and concludes that batching brings little. And one
# correction to the usual wording: what the cached engine doesn't repeat are keys and values of
# the earlier tokens, all layers of them; it never held an attention result.
#
# ## What a forward pass costs
#
# Why is a decode step so different from a prefill? Count both: arithmetic, and bytes moved.

# %% [markdown] lang="ko" of="d31eb9f8"
# 그룹의 답은 맞고, 두 가지로 더 정확해집니다. 수준만 틀린 것이 아니라 *모양*이 틀립니다. 거의
# 평평해야 할 ITL이 위치에 따라 늘어납니다. *결정*도 틀립니다. 캐시 없이 배치 크기를 훑으면 무릎이
# 일찍 나타나서 배칭이 별로 도움이 안 된다고 결론 내리게 됩니다. 흔한 표현도 하나 바로잡으면, 캐시
# 엔진이 되풀이하지 않는 것은 앞 토큰들의 모든 레이어의 키와 값입니다. 어텐션 결과를 담은 적은 없습니다.
#
# ## 순전파 한 번의 비용
#
# 디코드는 왜 프리필과 그렇게 다를까요? 둘 다 세어 봅시다. 연산량과 옮긴 바이트입니다.

# %% show="labkit.measure.roofline:Cost"

# %% exercise="03.4"

# %% tags=["nbval-ignore-output"]
forward_cost = use("03.4")

# %%
model_config = caching.PUBLIC["SmolLM2-135M"]
for name, num_new, num_cached in (("decode", 1, 255), ("prefill", 256, 0)):
    cost = forward_cost(model_config, num_new, num_cached)
    print(
        f"{name:8} {cost.num_flops / 1e9:6.2f} GFLOP, {cost.num_bytes / 1e6:4.0f} MB moved, "
        f"{cost.intensity:6.1f} FLOP per byte"
    )

# %% [markdown] lang="en"
# ## Experiment C: would splitting help?
#
# The group's short answer to **question 2, does splitting CPU and GPU work always raise GPU
# utilization?** is: *no; tokenizer delay, small batches, KV shortage, transfers, the scheduler or
# memory bandwidth may hold it back; look at queue time, TTFT, tokens/s, KV use.* Notebook 07 turns
# all six on and off. Here is the one that no process boundary can move: memory bandwidth.
#
# **Predict.** Of the FLOP/s that this machine can do, what share does a decode step of one sequence
# use?

# %% [markdown] lang="ko" of="98c5b768"
# ## 실험 C: 나누면 도움이 될까?
#
# **질문 2** “CPU와 GPU의 일을 나누면 항상 GPU 이용률이 올라가는가?”에 대한 그룹의 짧은 답은 *아니다.
# 토크나이저 지연, 작은 배치, KV 부족, 전송, 스케줄러, 메모리 대역폭이 발목을 잡을 수 있다. 대기 시간,
# TTFT, tokens/s, KV 사용량을 보라* 입니다. 여섯 가지를 켜고 끄는 것은 노트북 07에서 합니다. 여기서는
# 프로세스를 나눠도 움직이지 않는 하나, 메모리 대역폭을 봅니다.
#
# **예측.** 이 장비가 낼 수 있는 FLOP/s 중에서 시퀀스 하나의 디코드는 몇 퍼센트를 쓸까요?

# %% tags=["nbval-ignore-output"]
predict("03.flops", low=0, high=100, unit="% of the FLOP/s")

# %% [markdown] lang="en"
# **Run.** Both roofs are measured, then three passes of labkit's decoder are placed under them. (A
# filled mark *above* a roof means that something else kept the machine busy while a roof was measured:
# run the cell again.)

# %% [markdown] lang="ko" of="5bfe8a55"
# **실행.** 두 지붕을 재고, labkit 디코더의 순전파 세 가지를 그 아래에 놓습니다. (채워진 표시가 지붕
# *위*에 있으면 지붕을 재는 동안 다른 일이 장비를 쓴 것입니다. 셀을 다시 실행하세요.)

# %% tags=["nbval-ignore-output"]
from labkit.measure import roofline
from labkit.workbook.plots import Step, roofline_figure

step_time = use("00.1")
machine = roofline.measure_machine(device=device)
context = 128
steps = [
    Step(
        f"decode, {size} sequence{'s' * (size > 1)} of {context}",
        caching.decode_cost(forward_cost, model_config, context, size),
        caching.step_seconds(smol.model, context, 1, size, repeats=4),
    )
    for size in (1, 16)
]
steps.append(
    Step(
        f"prefill of {context} tokens",
        caching.prefill_cost(forward_cost, model_config, context),
        caching.step_seconds(smol.model, context, context),
    )
)
roofline_figure(machine, steps, step_time)

# %% tags=["nbval-ignore-output"]
decode_step = steps[0]
share = 100 * decode_step.cost.num_flops / decode_step.seconds / machine.peak_flops
compare("03.flops", share, "% of the FLOP/s")

# %% [markdown] lang="en"
# The decode step lies under the slope. The processor is *busy* all that time, by any monitor's
# account, and idles by this one: it waits for weights. What else could be moved away from it? All
# that is done beside the model: scheduling, sampling, turning tokens into text.
#
# **Predict.** If all of that ran somewhere else, for free: how many per cent faster would the decode
# step of one sequence be at most, on this machine?

# %% [markdown] lang="ko" of="733a3e53"
# 디코드는 비탈 아래에 있습니다. 어떤 모니터로 봐도 프로세서는 그동안 *바쁘지만*, 이 그림으로 보면
# 놀고 있습니다. 가중치를 기다립니다. 여기서 무엇을 떼어 낼 수 있을까요? 모델 옆에서 하는 모든 일,
# 스케줄링, 샘플링, 토큰을 텍스트로 바꾸는 일입니다.
#
# **예측.** 그 모든 일이 다른 곳에서 공짜로 된다면, 이 장비에서 시퀀스 하나의 디코드는 많아야 몇
# 퍼센트 빨라질까요?

# %% tags=["nbval-ignore-output"]
predict("03.split", low=0, high=100, unit="% faster")

# %% [markdown] lang="en"
# **Run.** Measured here: one request on your cached engine, its text made as it comes. Modelled: an
# H100 by its data sheet (bandwidth and FLOP/s), in bfloat16, with the same time beside the model.

# %% [markdown] lang="ko" of="337b074f"
# **실행.** 여기서 잰 것(measured)은 캐시 엔진의 요청 하나이고 텍스트도 그때그때 만듭니다. 계산한
# 것(modelled)은 사양서의 대역폭과 FLOP/s로 본 H100, bfloat16이며 모델 옆의 시간은 여기서 잰 것과
# 같다고 둡니다.

# %% tags=["nbval-ignore-output"]
from labkit.measure.simulate.cards import card_named
from labkit.model.detokenizer import Detokenizer
from labkit.workbook.figures.caching import split_figure

detokenizer, card = Detokenizer(smol.tokenizer), card_named("H100")
alone = caching.serve(
    "here", keeps, asked(max_tokens=24)[:1], lambda event: detokenizer.push(event.token_id)
)
beside = (alone.seconds - alone.model_seconds) / alone.num_steps
splits = [
    caching.Split("SmolLM2-135M, here", beside, alone.model_seconds / alone.num_steps, "measured")
]
flops_used = {}
for name, size in (("SmolLM2-135M", 1), ("Llama 3 8B", 1), ("Llama 3 8B", 64)):
    cost = caching.decode_cost(forward_cost, caching.PUBLIC[name], 1024, size, bytes_per_number=2)
    seconds, bound = step_time(cost.num_flops, cost.num_bytes, card.flops, card.bandwidth)
    split = caching.Split(f"{name}, H100, batch {size}", beside, seconds, "in the model: modelled")
    splits.append(split)
    flops_used[name, size] = 100 * cost.num_flops / seconds / card.flops
    print(
        f"{split.name:28} bound by {bound}; busy {100 * split.busy:3.0f}% → "
        f"{100 * split.busy_split:3.0f}% when split; "
        f"while busy, {flops_used[name, size]:.1f}% of its FLOP/s"
    )
split_figure(splits)

# %% tags=["nbval-ignore-output"]
compare("03.split", 100 * (splits[0].gain - 1), "% faster")

# %% [markdown] lang="en"
# The answer stands, sharpened to a formula. Side by side, a step takes as long as the longer of the
# two, so splitting gains at most (beside + model) / max(beside, model). That is twice when both are
# equally long, and next to nothing when one of them is: a long model part leaves nothing to hide, as
# on a CPU; and a long part *beside* the model is itself what holds the step, as for a tiny
# model on an H100. There it helps to make that part shorter, not to move it.
#
# And splitting raises the share of time in which the device is busy, not what it does in that time.
# Bound by memory, a decode step of one sequence leaves more than 99% of an H100's FLOP/s unused,
# split or not. What moves that is more sequences for the same weights, a larger batch. And how many
# sequences there can be is decided by the cache.
#
# ## How many sequences fit?
#
# The paper that introduced PagedAttention (Kwon et al., 2023) does this sum for OPT-13B: keys and
# values, 40 layers, 5,120 numbers, 2 bytes: 800 KB for *one token*, 1.6 GB for a sequence of 2,048.

# %% [markdown] lang="ko" of="11958ee8"
# 답은 맞고, 공식으로 더 정확해집니다. 나란히 돌리면 한 단계는 둘 중 긴 쪽만큼 걸리므로, 나눠서 얻는
# 이득은 많아야 (옆 + 모델) / max(옆, 모델)입니다. 둘의 길이가 같을 때 두 배이고, 한쪽이 길면 거의
# 없습니다. 모델 쪽이 길면 CPU에서처럼 숨길 것이 없고, *옆*이 길면 H100의 아주 작은 모델처럼 그쪽이 바로
# 단계를 붙잡는 병목입니다. 그때는 옮기는 것이 아니라 줄이는 것이 도움이 됩니다.
#
# 그리고 나눠서 올라가는 것은 장치가 바쁜 시간의 비율이지, 그 시간에 하는 일이 아닙니다. 메모리에 묶인
# 시퀀스 하나의 디코드는 나누든 말든 H100의 FLOP/s를 99% 넘게 놀립니다. 이것을 바꾸는 것은 같은 가중치를
# 쓰는 시퀀스를 늘리는 것, 더 큰 배치입니다. 그리고 시퀀스가 몇 개일 수 있는지는 캐시가 정합니다.
#
# ## 시퀀스가 몇 개 들어가는가
#
# PagedAttention을 소개한 논문(Kwon et al., 2023)은 OPT-13B로 이 계산을 합니다. 키와 값, 레이어 40개,
# 숫자 5,120개, 2바이트: *토큰 하나*에 800KB, 2,048토큰짜리 시퀀스에 1.6GB입니다.

# %% exercise="03.5"

# %% tags=["nbval-ignore-output"]
sequences_that_fit = use("03.5")

# %%
print(f"{'bfloat16':14} {'KV per token':>14}   1,024-token sequences on an H100 (80 GB)")
for name, public in caching.PUBLIC.items():
    weight_bytes = 2 * public.num_params
    per_token, fit = sequences_that_fit(public, 1024, 80 * 10**9, weight_bytes)
    print(f"{name:14} {per_token:8,} bytes   {fit:6,}")

# %% [markdown] lang="en"
# Compare the two Llamas of about the same size: GQA made the cache four times smaller. (DeepSeek's
# latent attention keeps one compressed vector for all heads; its formula is another.) A server also
# sets a tenth or so of the card aside for activations, which this sum leaves out.
#
# ## Experiment D: a row for each
#
# labkit gives its cache 1 GiB unless told otherwise.
#
# **Predict.** How many sequences of 1,024 tokens of SmolLM2-135M fit in 1 GiB (float32 on a CPU)?

# %% [markdown] lang="ko" of="1956f56c"
# 크기가 비슷한 두 Llama를 비교해 보세요. GQA 덕분에 캐시가 4분의 1이 되었습니다. (DeepSeek의 잠재
# 어텐션은 모든 헤드를 위해 압축된 벡터 하나를 남기며 공식이 다릅니다.) 서버는 활성값을 위해 카드의
# 10분의 1쯤을 따로 떼어 두지만, 이 계산에서는 뺐습니다.
#
# ## 실험 D: 요청마다 한 행
#
# labkit은 따로 지정하지 않으면 캐시에 1GiB를 씁니다.
#
# **예측.** SmolLM2-135M의 1,024토큰짜리 시퀀스는 1GiB에 몇 개 들어갈까요(CPU에서 float32)?

# %% tags=["nbval-ignore-output"]
predict("03.fit", low=1, high=500, unit="sequences", step=1)

# %% [markdown] lang="en"
# **Run.** The formula, and then the real cache, counted: its bytes, divided by the tokens that it has
# room for.

# %% [markdown] lang="ko" of="bc125139"
# **실행.** 공식으로 계산하고, 실제 캐시를 셉니다. 캐시의 바이트를 담을 수 있는 토큰 수로 나눕니다.

# %% tags=["nbval-ignore-output"]
cache = keeps.runner.cache
counted = cache.num_bytes // (cache.num_blocks * cache.block_size)
kv_bits = 8 * cache.dtype.itemsize
per_token, fit = sequences_that_fit(model_config, 1024, 2**30, 0, kv_bits)
print(f"by formula {per_token:,} bytes a token, counted in the real cache {counted:,}")
compare("03.fit", fit, "sequences")

# %% [markdown] lang="en"
# And what do they hold? A row is as long as the longest request may get, since nobody knows how long
# an answer will be. Lengths of real traffic: 24 requests drawn like those of Azure's conversation
# trace (2023, public), in rows for 8,192 tokens.
#
# **Predict.** How many per cent of the reserved memory ever hold a token?

# %% [markdown] lang="ko" of="8af30a72"
# 그러면 그 행에는 무엇이 들어 있을까요? 답이 얼마나 길지 아무도 모르므로, 행은 가장 긴 요청만큼
# 깁니다. 실제 트래픽의 길이로 봅시다. 공개된 Azure 대화 트레이스(2023)처럼 뽑은 요청 24개를 8,192토큰
# 짜리 행에 넣습니다.
#
# **예측.** 예약한 메모리의 몇 퍼센트에 한 번이라도 토큰이 들어갈까요?

# %% tags=["nbval-ignore-output"]
predict("03.rows", low=0, high=100, unit="% used")

# %% tags=["nbval-ignore-output"]
from labkit.measure.simulate.synthetic import synthetic
from labkit.workbook.figures.caching import rows_figure

lengths = [(a.num_prompt_tokens, a.num_output_tokens) for a in synthetic("conv", 24)]
row_length = 8192
rows_figure(lengths, row_length, "Rows of a contiguous cache, lengths like Azure's conversations")

# %% tags=["nbval-ignore-output"]
used = 100 * sum(map(sum, lengths)) / (row_length * len(lengths))
compare("03.rows", used, "% used")

# %% [markdown] lang="en"
# Four fifths of the most expensive memory in the house stay empty, and that is the *end* of each
# request, when its row is fullest. Kwon et al. measured much the same in real systems of the time: 20
# to 38% of the KV memory held tokens. Whoever halves the waste can double the batch, or more. That is
# notebook 04.

# %% [markdown] lang="ko" of="0318a95a"
# 가장 비싼 메모리의 5분의 4가 비어 있고, 이것도 행이 가장 차 있는 요청의 *끝*을 기준으로 한 것입니다.
# Kwon et al.이 당시 실제 시스템에서 잰 것도 비슷합니다. KV 메모리의 20에서 38%만 토큰을 담고
# 있었습니다. 낭비를 절반으로 줄이면 배치가 두 배, 또는 그 이상이 될 수 있습니다. 노트북 04의 주제입니다.

# %% [markdown] lang="en"
# ## What breaks
#
# Three faults that public servers and libraries shipped. None of them crashes; each is right in the
# test that one writes first.
#
# **1. The mask in the wrong corner.** `is_causal=True` for everything. Prefill is square, so the first
# token is right. Then every new token sees the first key and nothing else, and the model says the
# same thing for ever.

# %% [markdown] lang="ko" of="017e5ffb"
# ## 무엇이 깨지는가
#
# 공개된 서버와 라이브러리가 실제로 냈던 버그 세 가지입니다. 어느 것도 죽지 않고, 처음 쓰는 테스트에서는
# 모두 맞습니다.
#
# **1. 마스크가 반대쪽 모서리에 있다.** 언제나 `is_causal=True`를 씁니다. 프리필은 정사각형이라 첫
# 토큰은 맞습니다. 그 뒤의 새 토큰은 모두 첫 번째 키만 보고, 모델은 같은 말을 끝없이 되풀이합니다.

# %%
import torch.nn.functional as F


def top_left(q, kv, start):
    keys, values = kv.unsqueeze(1)
    queries = q.transpose(0, 1).unsqueeze(0)
    out = F.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)
    return out[0].transpose(0, 1)


for name, one in (("top left", top_left), ("bottom right", attend)):
    textbook.model.attention = caching.attention_by(one)
    print(f"{name:13}", caching.decode(textbook.model, prompt, 8, span_of)[0])

# %% [markdown] lang="en"
# **2. Positions begin again.** The new token is fed alone, so somebody numbers it 0. transformers
# repaired this for M2M100 and XGLM, which forgot the length of the cache. A shift of *all* positions,
# on the other hand, changes nothing: rotary embeddings turn query and key, and only the difference of
# two positions is felt.

# %% [markdown] lang="ko" of="54955a8e"
# **2. 위치가 다시 시작한다.** 새 토큰을 하나만 넣다 보니 누군가 그 위치를 0으로 매깁니다. transformers는
# 캐시 길이를 잊어버린 M2M100과 XGLM에서 이것을 고쳤습니다. 반면에 위치를 *모두* 똑같이 밀면 아무것도
# 바뀌지 않습니다. 회전 임베딩(rotary embedding)은 쿼리와 키를 돌리고, 두 위치의 차이만 영향을 줍니다.

# %%
from dataclasses import replace


class Renumbered:
    """A decoder whose positions go through a function first."""

    def __init__(self, decoder, number):
        self.decoder, self.number = decoder, number
        self.config, self.dtype, self.device = decoder.config, decoder.dtype, decoder.device

    def __call__(self, batch, cache):
        return self.decoder(replace(batch, positions=self.number(batch.positions)), cache)


for name, number in (
    ("from 0 in every step", lambda positions: positions - positions[0]),
    ("all moved by 7", lambda positions: positions + 7),
    ("as they are", lambda positions: positions),
):
    print(f"{name:21}", caching.decode(Renumbered(tiny.model, number), prompt, 8, span_of)[0])

# %% [markdown] lang="en"
# **3. The last owner's tokens.** A server keeps the count with the *row*, to reuse a prompt that
# comes twice, and doesn't look whether it is the same prompt. Ollama repaired a cache that
# wasn't cleared well between two requests with the same prompt (pull request 2186), and a user of
# llama.cpp's server reported answers that continued somebody else's conversation (issue 27148, 2026).
# Here the first guest asks about a tower, the second about an animal.

# %% [markdown] lang="ko" of="966176a3"
# **3. 전 주인의 토큰.** 같은 프롬프트가 다시 올 때 쓰려고 개수를 *행*에 적어 두고, 정말 같은 프롬프트인지
# 확인하지 않는 서버입니다. Ollama는 프롬프트가 같은 두 요청 사이에 제대로 지워지지 않던 캐시를 고쳤고
# (pull request 2186), llama.cpp 서버의 한 사용자는 남의 대화를 이어 가는 답을 보고했습니다(이슈 27148,
# 2026). 여기서는 첫 손님이 탑에 대해, 둘째 손님이 동물에 대해 묻습니다.

# %% tags=["nbval-ignore-output"]
class CountOfTheRow(CachedEngine):
    in_row = 0

    def next_batch(self):
        batch = super().next_batch()
        for request in batch:
            request.num_computed_tokens, self.in_row = self.in_row, request.num_prompt_tokens
        return batch


for kind in (CountOfTheRow, CachedEngine):
    engine = kind(smol.model, smol.eos_token_ids, **one_row)
    print(kind.__name__)
    for question in (
        "Which town is the Eiffel Tower in?",
        "Which animal gives us milk and is kept on farms, please?",
    ):
        request = Request("q", smol.encode_chat(question), max_tokens=14)
        caching.serve(question, engine, [request])
        answer_text = smol.tokenizer.decode(request.output_token_ids, skip_special_tokens=True)
        print(f"   {question}\n      {answer_text!r}")

# %% [markdown] lang="en"
# Somebody else's answer, in good English, and no error anywhere. A count belongs to a request; reuse
# belongs to whoever compares the tokens. Notebook 04 does it with a hash.
#
# ## Your answers
#
# **6. Does `use_cache=False` distort a benchmark?** Yes: the level, the shape (ITL grows with the
# position), and the decision (batching seems to bring little). What is reused with a cache are keys
# and values, not attention results.
#
# **2. Does splitting CPU and GPU work always raise GPU utilization?** No. It hides the shorter of the
# two parts behind the longer one, no more, and a decode step is held by memory bandwidth, which no
# split changes. The other five bottlenecks come in notebook 07.

# %% [markdown] lang="ko" of="3be840e2"
# 멀쩡한 문장으로 남의 답이 나오고, 오류는 어디에도 없습니다. 개수는 요청의 것이고, 재사용은 토큰을
# 비교하는 쪽의 일입니다. 노트북 04에서는 해시로 합니다.
#
# ## 여러분의 답
#
# **6. `use_cache=False`는 벤치마크를 왜곡하는가?** 그렇습니다. 수준도, 모양도(ITL이 위치에 따라 늘어남),
# 결정도(배칭이 별 도움이 안 되는 듯 보임) 틀어집니다. 캐시가 있을 때 다시 쓰는 것은 어텐션 결과가 아니라
# 키와 값입니다.
#
# **2. CPU와 GPU의 일을 나누면 항상 GPU 이용률이 올라가는가?** 아닙니다. 둘 중 짧은 쪽을 긴 쪽 뒤에
# 숨길 뿐이고, 디코드는 메모리 대역폭에 묶여 있어 나눠도 그대로입니다. 나머지 다섯 병목은 노트북 07에서
# 다룹니다.

# %% tags=["nbval-ignore-output"]
answer(
    6,
    tokens_computed_without_cache=served[1].tokens_computed,
    tokens_computed_with_cache=served[2].tokens_computed,
    tokens_per_s_without_cache=served[1].tokens_per_s,
    tokens_per_s_with_cache=served[2].tokens_per_s,
    itl_growth_without_cache=growth["no cache"],
    itl_growth_with_cache=growth["cache"],
    batch_16_gain_without_cache=gains["no cache"],
    batch_16_gain_with_cache=gains["cache"],
)

# %% tags=["nbval-ignore-output"]
answer(
    2,
    decode_percent_of_flops=share,
    ms_beside_the_model=1e3 * splits[0].beside_s,
    ms_in_the_model=1e3 * splits[0].model_s,
    split_gain_here=splits[0].gain,
    split_gain_llama_3_8b_on_h100_modelled=splits[2].gain,
    h100_percent_of_flops_modelled=flops_used["Llama 3 8B", 1],
)

# %% [markdown] lang="en"
# ## The ladder
#
# Three rungs so far, on one small workload.

# %% [markdown] lang="ko" of="8a67642f"
# ## 사다리
#
# 지금까지의 단(rung) 세 개를 작은 작업 하나로 잽니다.

# %% tags=["nbval-ignore-output"]
from labkit.workbook.ladder import ladder

ladder("cached")

# %% [markdown] lang="en"
# ## In vLLM and Triton Inference Server
#
# - **Computed and known tokens** have the same names in vLLM, `num_computed_tokens` and `num_tokens`
#   (`vllm/v1/request.py`), and its scheduler opens with the note that there is no prefill phase and
#   no decode phase. A row of logits after a chunk that isn't the last is computed there and its
#   sample thrown away (`vllm/v1/worker/gpu_model_runner.py`); here it isn't computed.
# - **Attention** reads blocks, not rows, by FlashAttention, FlashInfer or a kernel in the Triton
#   *language*; its causal mask is bottom right. Other layouts than ours: MLA, sliding windows, state
#   space layers, each with a spec of its own in `vllm/v1/kv_cache_interface.py`, which states the
#   bytes of a page, in one layer: 2 × block size × kv heads × head size × bytes of a number.
# - **How many fit** stands in the log when vLLM starts: "GPU KV cache size: … tokens" and "Maximum
#   concurrency for … tokens per request" (`vllm/v1/core/kv_cache_utils.py`), after a trial pass has
#   measured what activations need. `--kv-cache-dtype fp8` halves the bytes.
# - **Triton Inference Server** (the server, not the kernel language) has no KV cache of its own: it
#   schedules requests, and a backend keeps what lies between tokens. Its TensorRT-LLM backend gives
#   the cache 90% of the memory that is free after loading the model, unless
#   `kv_cache_free_gpu_mem_fraction` says otherwise; its vLLM backend passes vLLM's options on. The
#   server's own sequence batcher can keep state tensors between requests of one sequence, which is
#   the nearest thing to the row of this notebook.
#
# Next, notebook 04, where rows are cut into blocks and most of the empty memory comes back.

# %% [markdown] lang="ko" of="c71c0dff"
# ## vLLM과 Triton Inference Server에서는
#
# - **계산된 토큰과 알려진 토큰**은 vLLM에서도 이름이 같습니다. `num_computed_tokens`와
#   `num_tokens`(`vllm/v1/request.py`)이고, 스케줄러는 프리필 단계도 디코드 단계도 없다는 설명으로
#   시작합니다. 마지막이 아닌 청크 뒤의 로짓도 거기서는 계산하고 샘플을 버립니다
#   (`vllm/v1/worker/gpu_model_runner.py`). 여기서는 계산하지 않습니다.
# - **어텐션**은 행이 아니라 블록을 읽고, FlashAttention, FlashInfer 또는 Triton *언어*의 커널이
#   맡습니다. 인과 마스크는 오른쪽 아래에 맞춥니다. MLA, 슬라이딩 윈도, 상태 공간 레이어처럼 메모리
#   구조(layout)가 다른 것은 `vllm/v1/kv_cache_interface.py`에 저마다 명세가 있고, 페이지의 바이트도 거기 나옵니다.
#   레이어 하나에 2 × 블록 크기 × kv 헤드 × 헤드 크기 × 숫자 하나의 바이트입니다.
# - **몇 개 들어가는지**는 vLLM이 시작할 때 로그에 나옵니다. "GPU KV cache size: … tokens"와 "Maximum
#   concurrency for … tokens per request"입니다(`vllm/v1/core/kv_cache_utils.py`). 그 전에 시험 순전파로
#   활성값에 필요한 메모리를 잽니다. `--kv-cache-dtype fp8`은 바이트를 절반으로 줄입니다.
# - **Triton Inference Server**(커널 언어가 아니라 서버)에는 자체 KV 캐시가 없습니다. 요청을 스케줄링하고,
#   토큰 사이에 남는 것은 백엔드가 갖습니다. TensorRT-LLM 백엔드는 `kv_cache_free_gpu_mem_fraction`을 따로
#   주지 않으면 모델을 올린 뒤 남은 메모리의 90%를 캐시에 쓰고, vLLM 백엔드는 vLLM의 옵션을 그대로 넘깁니다. 서버의 sequence
#   batcher는 한 시퀀스의 요청 사이에 상태 텐서를 남길 수 있는데, 이 노트북의 행과 가장 비슷한 것입니다.
#
# 다음은 노트북 04입니다. 행을 블록으로 잘라 빈 메모리의 대부분을 되찾습니다.

# %% tags=["nbval-ignore-output"]
progress()
