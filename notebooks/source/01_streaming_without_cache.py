# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] lang="en"
# # 01 · Streaming without a cache
#
# The first server that most people write: one request at a time, one token per forward pass, and
# `use_cache=False`, so that every token is computed from scratch. It is slow in a way that you
# will measure, and it already streams.
#
# **After this notebook you can**
#
# - write the token loop of a language model and the engine step around it;
# - turn tokens into text that never breaks a character in half (한글, emoji, ď);
# - compute TTFT, ITL, TPOT and E2E from time stamps, by stated definitions;
# - answer two of the ten questions with numbers of your own machine:
#   **5. Does streaming reduce latency?** and **6. Does `use_cache=False` distort a benchmark?**

# %% [markdown] lang="ko" of="e2e7fc56"
# # 01 · 캐시 없이 스트리밍하기
#
# 대부분의 사람이 처음 만드는 서버입니다. 요청을 한 번에 하나씩 처리하고, 순전파(forward pass)마다
# 토큰 하나를 만들고, `use_cache=False`라서 토큰마다 처음부터 다시 계산합니다. 얼마나 느린지는 직접
# 재 봅니다. 그래도 스트리밍은 이미 됩니다.
#
# **이 노트북을 마치면**
#
# - 언어 모델의 토큰 루프와 이를 감싸는 엔진의 한 단계를 작성할 수 있습니다.
# - 글자를 반쪽으로 자르지 않고(한글, 이모지, ď) 토큰을 텍스트로 바꿀 수 있습니다.
# - 시각 기록에서 TTFT, ITL, TPOT, E2E를 정해진 정의대로 계산할 수 있습니다.
# - 열 가지 질문 중 두 개에 직접 잰 숫자로 답할 수 있습니다.
#   **5. 스트리밍은 지연 시간을 줄이는가?** **6. `use_cache=False`는 벤치마크를 왜곡하는가?**

# %% header minutes=20

# %% [markdown] lang="en"
# ## A real model, and what it sees
#
# SmolLM2-135M-Instruct is small enough for a laptop's CPU and real enough to answer. It sees
# token ids, never text. The chat template wraps the question in special tokens that mark who is
# speaking; the last line invites the assistant to go on.

# %% [markdown] lang="ko" of="e22d4051"
# ## 진짜 모델, 그리고 모델이 보는 것
#
# SmolLM2-135M-Instruct는 노트북 CPU에서 돌 만큼 작으면서도 실제로 대답하는 모델입니다. 모델은
# 텍스트가 아니라 토큰 id만 봅니다. 채팅 템플릿은 누가 말하는지 표시하는 특수 토큰으로 질문을
# 감싸고, 마지막 줄에서 어시스턴트가 이어서 말하도록 합니다.

# %% tags=["nbval-ignore-output"]
from labkit.model import best_device, load

device = best_device()  # "cuda" where there is a GPU
smol = load("smollm2-135m", device=device)
prompt = smol.encode_chat("Explain in two sentences why the sky is blue.")
print(len(prompt), "tokens:", prompt[:8], "...")
print(smol.tokenizer.decode(prompt))

# %% [markdown] lang="en"
# ## One token
#
# A causal language model takes `[1, n]` token ids and returns logits of shape `[1, n, vocab]`: for
# every position a score for each token of the vocabulary. Row *i* has seen tokens 0 to *i* and
# scores what follows them. To continue the text you need the last row only, and you take its best
# token: greedy decoding.
#
# With `use_cache=False` nothing is kept from one call to the next. Whatever the model computed for
# the first n tokens, it computes again when you ask about n + 1.

# %% [markdown] lang="ko" of="2f56cf91"
# ## 토큰 하나
#
# 인과적 언어 모델(causal language model)은 `[1, n]` 모양의 토큰 id를 받아 `[1, n, vocab]` 모양의
# 로짓(logits)을 돌려줍니다. 위치마다 어휘 전체에 대한 점수가 있습니다. *i*번째 행은 토큰 0부터
# *i*까지를 보고 그다음에 올 토큰의 점수를 매깁니다. 글을 이어 가는 데에는 마지막 행만 필요하고,
# 그중 점수가 가장 높은 토큰을 고릅니다. 이것이 그리디(greedy) 디코딩입니다.
#
# `use_cache=False`이면 호출 사이에 남는 것이 없습니다. 처음 n개 토큰에 대해 무엇을 계산했든
# n + 1개째를 물으면 처음부터 다시 계산합니다.

# %% exercise="01.1"

# %% [markdown] lang="en"
# Does it agree with an outside source? `transformers` has a loop of its own, `generate`. On `tiny`,
# a model of random weights that is the same on every machine, both must name the same tokens.

# %% [markdown] lang="ko" of="e917a3f9"
# 외부의 기준과도 일치할까요? `transformers`에는 `generate`라는 자체 루프가 있습니다. 어느
# 장비에서나 똑같은 무작위 가중치 모델 `tiny`에서 두 방법은 같은 토큰을 내야 합니다.

# %% tags=["nbval-ignore-output"]
next_token = use("01.1")

# %%
from labkit.measure.generation import generate

tiny = load("tiny", device=device)
token_ids = tiny.encode_chat("한글")
ours = []
for _ in range(8):
    ours.append(next_token(tiny.model, token_ids + ours))
print("ours:        ", ours)
print("transformers:", generate(tiny.model, token_ids, 8, use_cache=False))

# %% [markdown] lang="en"
# ## One step of an engine
#
# A server needs more than a loop: requests arrive while others run, and each must end for its own
# reason. So the loop is turned inside out. The engine keeps its requests in a line, and whoever
# drives it calls `step()` again and again; each step gives back *events*: this request, this
# token, and on the last one why it ended. Every engine of this workbook has this shape, requests
# in, events out, up to the one that schedules hundreds at once.

# %% [markdown] lang="ko" of="dc4a1423"
# ## 엔진의 한 단계
#
# 서버에는 루프 이상이 필요합니다. 다른 요청이 실행되는 동안 새 요청이 들어오고, 요청마다 끝나는
# 이유가 다릅니다. 그래서 제어를 뒤집습니다(inversion of control). 엔진은 요청을 대기열(queue)에 세워 두고, 엔진을 돌리는 쪽이
# `step()`을 계속 부릅니다. 단계마다 *이벤트*가 나옵니다. 어느 요청의 어떤 토큰인지, 마지막
# 토큰이면 왜 끝났는지를 담고 있습니다. 이 워크북의 모든 엔진은 요청이 들어가고 이벤트가 나오는
# 이 모양이며, 수백 개를 한꺼번에 스케줄링하는 엔진도 마찬가지입니다.

# %% show="labkit.engine.request:TokenEvent"

# %% show="labkit.engine.naive:NaiveEngine"

# %% exercise="01.2"

# %% [markdown] lang="en"
# Now the model talks. Each event is decoded and printed as soon as it exists: this is streaming,
# and it took nothing but returning after each token. (Decoding every token alone, as this cell
# does, goes well in English. You will see where it does not.)

# %% [markdown] lang="ko" of="dd4a8f1a"
# 이제 모델이 말합니다. 이벤트가 생기는 즉시 디코드해서 출력합니다. 이것이 스트리밍이고, 토큰마다
# 돌려주는 것 말고는 한 일이 없습니다. (이 셀처럼 토큰을 하나씩 따로 디코드해도 영어는 괜찮습니다.
# 어디에서 깨지는지는 곧 보게 됩니다.)

# %% tags=["nbval-ignore-output"]
from labkit.engine.request import Request

NaiveEngine = use("01.2")
engine = NaiveEngine(smol.model, smol.eos_token_ids)
engine.add(Request("first", smol.encode_chat("Name three colours."), max_tokens=12))
while engine.has_unfinished():
    for event in engine.step():
        print(smol.tokenizer.decode([event.token_id]), end="", flush=True)

# %% [markdown] lang="en"
# ## Tokens to text
#
# A byte-level tokenizer cuts UTF-8 bytes, not characters. 한글 is two characters, six bytes, and
# to this tokenizer five tokens. Decode them one by one and every piece is U+FFFD, the replacement
# character. Once a client has received it, it can't be taken back.

# %% [markdown] lang="ko" of="ca0904cf"
# ## 토큰에서 텍스트로
#
# 바이트 단위 토크나이저는 글자가 아니라 UTF-8 바이트를 자릅니다. "한글"은 글자 2개, 6바이트이고
# 이 토크나이저에서는 토큰 5개입니다. 하나씩 디코드하면 모든 조각이 대체 문자 U+FFFD가 됩니다.
# 클라이언트가 한번 받은 것은 되돌릴 수 없습니다.

# %%
hangul = smol.tokenizer.encode("한글")
print(hangul, [smol.tokenizer.decode([token_id]) for token_id in hangul])

# %% [markdown] lang="en"
# The cure is to wait until a character is whole. Two offsets into the list of tokens keep the work
# small, however long the answer gets.

# %% [markdown] lang="ko" of="4aa45112"
# 해결책은 글자가 완성될 때까지 기다리는 것입니다. 답이 아무리 길어져도 일이 늘지 않도록 토큰
# 리스트 위에 offset 두 개를 둡니다.

# %% show="labkit.model.detokenizer:Detokenizer"

# %% exercise="01.3"

# %% [markdown] lang="en"
# 한글, streamed token by token with your part (or labkit's): nothing, until there is a character.

# %% [markdown] lang="ko" of="fad342f2"
# "한글 스트리밍"을 토큰 하나씩 흘려 봅니다. 글자가 완성되기 전에는 아무것도 나오지 않습니다.

# %% tags=["nbval-ignore-output"]
Detokenizer = use("01.3")

# %%
detokenizer = Detokenizer(smol.tokenizer)
for token_id in smol.tokenizer.encode("한글 스트리밍 🙂"):
    print(f"{token_id:6d}  {detokenizer.push(token_id)!r}")

# %% [markdown] lang="en"
# ## What a user feels, in four numbers
#
# | name | measured from | to |
# | --- | --- | --- |
# | TTFT, time to first token | arrival | first token |
# | ITL, inter-token latency | a token | the next one |
# | TPOT, time per output token | first token | last token, divided by (tokens − 1): the mean ITL |
# | E2E, end to end | arrival | last token |
#
# Arrival is when the request was made, not when a server found time for it. Tools differ in these
# details. Here the stamps are the engine's: when a token existed. A load generator stamps what
# reaches the *client*, so there an unstreamed answer has a TTFT as long as its E2E. And a
# benchmark that starts the clock late looks better than what users feel.

# %% [markdown] lang="ko" of="276fa93c"
# ## 사용자가 느끼는 것, 네 가지 숫자
#
# | 이름 | 시작 | 끝 |
# | --- | --- | --- |
# | TTFT, 첫 토큰까지의 시간 (time to first token) | 도착 | 첫 토큰 |
# | ITL, 토큰 사이의 시간 (inter-token latency) | 어떤 토큰 | 다음 토큰 |
# | TPOT, 출력 토큰당 시간 (time per output token) | 첫 토큰 | 마지막 토큰, (토큰 수 − 1)로 나눔: ITL의 평균 |
# | E2E, 처음부터 끝까지 (end to end) | 도착 | 마지막 토큰 |
#
# 도착이란 요청이 만들어진 때이지, 서버가 손댈 여유가 생긴 때가 아닙니다. 도구마다 이런 세부가
# 다릅니다. 여기서는 엔진 쪽, 즉 토큰이 생긴 시각을 잽니다. 부하 생성기는 *클라이언트*에 도착한
# 시각을 재므로, 스트리밍하지 않은 답은 TTFT가 E2E와 같아집니다. 또한 시계를 늦게 시작하는 벤치마크는 사용자가 느끼는 것보다 좋게 나옵니다.

# %% show="labkit.measure.metrics:Latency"

# %% exercise="01.4"

# %% [markdown] lang="en"
# ## Experiment A: the same answer, streamed and not
#
# The study group's short answer to **question 5, does streaming reduce latency?** is: *it reduces
# TTFT and what the user feels; measure TTFT, ITL and end to end.* Let us see what exactly shrinks.
#
# **Predict.** An answer of 32 tokens goes to two readers: to one token by token, to the other all
# at the end. How many times later does the second reader see any text?

# %% [markdown] lang="ko" of="2ddc4e5c"
# ## 실험 A: 같은 답을 스트리밍할 때와 하지 않을 때
#
# **질문 5** “스트리밍은 지연 시간을 줄이는가?”에 대한 스터디 그룹의 짧은 답은 *TTFT와 사용자가
# 느끼는 시간을 줄인다. TTFT, ITL, E2E를 재 보라* 입니다. 정확히 무엇이 줄어드는지 봅시다.
#
# **예측.** 32토큰짜리 답을 두 사람에게 보냅니다. 한 사람에게는 토큰마다, 다른 사람에게는 끝에
# 한꺼번에. 두 번째 사람은 첫 텍스트를 몇 배 늦게 보게 될까요?

# %% tags=["nbval-ignore-output"]
predict("01.first_text", low=1, high=80, unit="times later")

# %% [markdown] lang="en"
# **Run.** Both watch the same run of the engine, so that nothing but the sending differs.

# %% [markdown] lang="ko" of="e5042568"
# **실행.** 두 사람이 엔진의 같은 실행을 지켜보므로 보내는 방식 말고는 다른 것이 없습니다.

# %% tags=["nbval-ignore-output"]
from labkit.measure.generation import deliver

streamed, unstreamed = deliver(
    NaiveEngine(smol.model, smol.eos_token_ids),
    Detokenizer(smol.tokenizer),
    Request("sky", prompt, max_tokens=32, ignore_eos=True),
    show=lambda piece: print(piece, end="", flush=True),
)

# %% tags=["nbval-ignore-output"]
from labkit.workbook.figures.streaming import delivery_figure

delivery_figure(streamed, unstreamed)

# %% [markdown] lang="en"
# **Compare.** The first text came far sooner, the last at the same moment. For the engine there is
# one TTFT and one TPOT: it made the same tokens at the same times, whoever was reading.

# %% [markdown] lang="ko" of="4be95a0f"
# **비교.** 첫 텍스트는 훨씬 일찍, 마지막 텍스트는 같은 순간에 왔습니다. 엔진의 TTFT와 TPOT는
# 하나뿐입니다. 누가 읽든 같은 토큰을 같은 시각에 만들었습니다.

# %% tags=["nbval-ignore-output"]
latency = use("01.4")
for name, seen in (("streamed", streamed), ("sent at the end", unstreamed)):
    print(f"{name:16} first text {seen.first_text:5.2f} s   last text {seen.last_text:5.2f} s")
engine_side = latency(streamed.arrival, streamed.token_times)
print(f"engine           TTFT {engine_side.ttft:.2f} s, TPOT {1e3 * engine_side.tpot:.0f} ms")
compare("01.first_text", unstreamed.first_text / streamed.first_text, "times later")

# %% [markdown] lang="en"
# ## Experiment B: the next token gets slower
#
# Without a cache, token n means a forward pass over all n tokens. A matrix product over more rows
# takes longer, though not at once: below some dozens of rows a CPU waits for the weights to arrive
# from memory, and more rows come for free. Remember the roofline of notebook 00.
#
# **Predict.** How many times longer does a token take after 256 tokens than after 16?

# %% [markdown] lang="ko" of="bd95d223"
# ## 실험 B: 다음 토큰은 점점 느려진다
#
# 캐시가 없으면 n번째 토큰은 토큰 n개 전체에 대한 순전파입니다. 행이 많아지면 행렬 곱은 오래
# 걸리지만, 바로 그렇지는 않습니다. 행이 수십 개 이하일 때 CPU는 메모리에서 가중치가 오기를
# 기다리는 중이라 행이 늘어도 거의 공짜입니다. 노트북 00의 루프라인(roofline)을 떠올려 보세요.
#
# **예측.** 토큰 256개 뒤의 토큰 하나는 16개 뒤의 토큰보다 몇 배 오래 걸릴까요?

# %% tags=["nbval-ignore-output"]
predict("01.itl_growth", low=1, high=40, unit="times longer")

# %% [markdown] lang="en"
# **Run.** Each point is the faster of two calls of `next_token` on that many tokens.

# %% [markdown] lang="ko" of="6154e9ae"
# **실행.** 각 점은 그만큼의 토큰으로 `next_token`을 두 번 불러 더 빠른 쪽의 시간입니다.

# %% tags=["nbval-ignore-output"]
from labkit.measure.generation import seconds_by_position
from labkit.workbook.figures.streaming import itl_figure

next_token = use("01.1")
positions = [16, 64, 128, 256]
seconds = seconds_by_position(next_token, smol.model, prompt * 12, positions, repeats=2)
itl_figure(positions, seconds)

# %% tags=["nbval-ignore-output"]
compare("01.itl_growth", seconds[-1] / seconds[0], "times longer")

# %% [markdown] lang="en"
# So the ITL of this server is not one number. It depends on where in the answer you look, and a
# benchmark with short answers flatters it.
#
# ## Experiment C: counting the work
#
# Time differs from machine to machine; the tokens that go through the model do not. First the
# formula, then the count.

# %% [markdown] lang="ko" of="252a4fac"
# 그래서 이 서버의 ITL은 숫자 하나가 아닙니다. 답의 어느 위치를 보느냐에 따라 다르고, 짧은 답으로
# 잰 벤치마크는 실제보다 좋게 나옵니다.
#
# ## 실험 C: 작업량 세기
#
# 시간은 장비마다 다르지만 모델을 지나가는 토큰 수는 그렇지 않습니다. 먼저 공식을 세우고, 그다음
# 세어 봅니다.

# %% exercise="01.5"

# %% [markdown] lang="en"
# The study group's short answer to **question 6, does `use_cache=False` distort a benchmark?** is:
# *yes; every step repeats the work of all tokens before. Fine for teaching, wrong for benchmarks.*
#
# **Predict.** This prompt, 16 tokens out: how many times more tokens go through the model
# without a cache than with one?

# %% [markdown] lang="ko" of="ac5cbe46"
# **질문 6** “`use_cache=False`는 벤치마크를 왜곡하는가?”에 대한 스터디 그룹의 짧은 답은 *그렇다. 매
# 단계가 앞의 모든 토큰의 일을 되풀이한다. 배우기에는 좋지만 벤치마크로는 부적절하다* 입니다.
#
# **예측.** 이 프롬프트로 16토큰을 출력할 때, 캐시가 없으면 있을 때보다 몇 배 많은 토큰이 모델을
# 거칠까요?

# %% tags=["nbval-ignore-output"]
predict("01.work", low=1, high=64, unit="times as many")

# %% [markdown] lang="en"
# **Run.** A hook on the model's embedding counts the tokens of every forward pass, while
# `transformers`' own `generate` runs with and without its cache. (With a cache the *keys and
# values* of earlier tokens are reused, not attention results. Notebook 01 only borrows it.)

# %% [markdown] lang="ko" of="3f51ff2e"
# **실행.** 모델의 임베딩에 훅(hook)을 걸어 순전파마다 토큰을 셉니다. `transformers`의 `generate`를
# 캐시를 켜고, 또 끄고 돌립니다. (캐시가 있으면 다시 쓰는 것은 어텐션 결과가 아니라 앞 토큰들의
# *키와 값*(keys and values)입니다. 이 노트북에서는 빌려 쓰기만 합니다.)

# %% tags=["nbval-ignore-output"]
import time

from labkit.measure.generation import count_forwards
from labkit.workbook.figures.streaming import work_figure

token_forwards = use("01.5")
counted, speed = {}, {}
for num_tokens in (4, 16):
    for use_cache in (False, True):
        with count_forwards(smol.model) as count:
            started = time.perf_counter()
            generate(smol.model, prompt, num_tokens, use_cache)
            speed[num_tokens, use_cache] = num_tokens / (time.perf_counter() - started)
        counted[num_tokens, use_cache] = count.tokens
        formula = token_forwards(len(prompt), num_tokens, use_cache)
        print(
            f"{num_tokens:3} tokens, use_cache={use_cache!s:5}: {count.passes:3} passes, "
            f"{count.tokens:5} tokens counted, {formula:5} by formula, "
            f"{speed[num_tokens, use_cache]:5.1f} tokens/s"
        )
work_figure(token_forwards, len(prompt), counted)

# %% tags=["nbval-ignore-output"]
compare("01.work", counted[16, False] / counted[16, True], "times as many")

# %% [markdown] lang="en"
# The number of passes is the same, the work is not, and the gap grows with the length: for a
# prompt of p tokens and n tokens out it is about n (p + n/2) against p + n. The *time* grows
# less than the work, since a pass over few tokens waits for the weights anyway. Both are
# distortions: tokens/s measured here says little about a server with a cache.

# %% [markdown] lang="ko" of="373e92fb"
# 순전파 횟수는 같지만 작업량은 다르고, 차이는 길이와 함께 커집니다. 프롬프트가 p토큰, 출력이
# n토큰이면 약 n (p + n/2) 대 p + n입니다. *시간*은 작업량만큼 늘지 않습니다. 토큰이 적은
# 순전파는 어차피 가중치를 기다리기 때문입니다. 둘 다 왜곡입니다. 여기서 잰 tokens/s는 캐시가 있는
# 서버에 대해 거의 아무것도 말해 주지 않습니다.

# %% [markdown] lang="en"
# ## What breaks
#
# Chapter 3 of *Hands-On LLM Serving and Optimization* has a server at this rung: a prompt in, a
# loop with `use_cache=False`, text out. Four things go wrong with such servers in practice. Each
# is shown failing on a small input, then mended.
#
# **1. Text is tokenized again at every step.** A loop that keeps *text* decodes the new token,
# appends it, and encodes everything for the next step. Half a character does not survive that
# journey, so the model continues something that it never said.

# %% [markdown] lang="ko" of="b4a2e16a"
# ## 무엇이 깨지는가
#
# *Hands-On LLM Serving and Optimization* 3장의 서버가 바로 이 단계입니다. 프롬프트가 들어가고,
# `use_cache=False`로 루프를 돌고, 텍스트가 나옵니다. 이런 서버는 실제로 네 가지가 잘못됩니다.
# 각각 작은 입력에서 깨지는 모습을 보고 고칩니다.
#
# **1. 단계마다 텍스트를 다시 토큰화한다.** *텍스트*를 들고 있는 루프는 새 토큰을 디코드해 붙이고,
# 다음 단계에서 전체를 다시 인코딩합니다. 반쪽 글자는 이 왕복에서 살아남지 못해서, 모델은 자신이
# 말한 적 없는 것을 이어 가게 됩니다.

# %%
said = smol.tokenizer.encode("한글")
kept_as_text = []
for token_id in said:
    text = smol.tokenizer.decode(kept_as_text) + smol.tokenizer.decode([token_id])
    kept_as_text = smol.tokenizer.encode(text)
print("the model said  ", said)
print("kept as text    ", kept_as_text, repr(smol.tokenizer.decode(kept_as_text)))

kept_as_tokens = []
for token_id in said:
    kept_as_tokens.append(token_id)
print("kept as tokens  ", kept_as_tokens, repr(smol.tokenizer.decode(kept_as_tokens)))

# %% [markdown] lang="en"
# **2. Padding on the wrong side.** Two prompts of different length need padding to share a batch.
# With padding on the right, the last row of the shorter prompt is a padding token, and the model
# is asked what follows *it*. Padding on the left, with a mask, keeps the last row real.

# %% [markdown] lang="ko" of="0e781bde"
# **2. 패딩을 잘못된 쪽에 넣는다.** 길이가 다른 프롬프트 둘을 한 배치에 넣으려면 패딩이 필요합니다.
# 오른쪽에 패딩을 넣으면 짧은 프롬프트의 마지막 행이 패딩 토큰이 되고, 모델은 *패딩* 다음에 무엇이
# 올지 질문받습니다. 마스크와 함께 왼쪽에 넣으면 마지막 행은 진짜 토큰입니다.

# %% tags=["nbval-ignore-output"]
import torch

next_token = use("01.1")
short, long = "The capital of France is", "The opposite of hot is cold, and the opposite of up is"
alone = next_token(smol.model, smol.tokenizer.encode(short))
print("alone:        ", repr(smol.tokenizer.decode([alone])))
for side in ("right", "left"):
    batch = smol.tokenizer([short, long], padding=True, padding_side=side, return_tensors="pt")
    batch = batch.to(smol.model.device)
    mask = batch.attention_mask
    positions_of = (mask.cumsum(-1) - 1).clamp(min=0)  # the first real token has position 0
    with torch.inference_mode():
        logits = smol.model(
            input_ids=batch.input_ids,
            attention_mask=mask,
            position_ids=positions_of,
            use_cache=False,
        ).logits
    print(f"padded {side + ':':7}", repr(smol.tokenizer.decode([int(logits[0, -1].argmax())])))

# %% [markdown] lang="en"
# **3. The end is lost.** A server that looks for the end-of-sequence token in its *text* never
# finds it once that text was decoded with `skip_special_tokens=True`: the request runs on to
# `max_tokens` and pays for every token. Compare ids, as your `step` does.

# %% [markdown] lang="ko" of="eda0a0fd"
# **3. 끝을 놓친다.** `skip_special_tokens=True`로 디코드한 *텍스트*에서 종료 토큰을 찾는 서버는
# 영영 찾지 못합니다. 요청은 `max_tokens`까지 계속되고 그 비용을 모두 치릅니다. 여러분의 `step`처럼
# id를 비교하세요.

# %%
end = smol.tokenizer.eos_token_id
from_the_model = [*smol.tokenizer.encode("Blue."), end, *smol.tokenizer.encode(" Red. Green.")]


def tokens_served(ended):
    for served in range(1, len(from_the_model) + 1):
        if ended(from_the_model[:served]):
            break
    return served


def ended_by_text(ids):
    return smol.tokenizer.eos_token in smol.tokenizer.decode(ids, skip_special_tokens=True)


def ended_by_id(ids):
    return ids[-1] == end


print("looking in the text:", tokens_served(ended_by_text), "tokens, all that there were")
print("comparing ids:      ", tokens_served(ended_by_id), "tokens")

# %% [markdown] lang="en"
# **4. Half characters.** You have mended this one: what each token says alone, and what the
# detokenizer sends.

# %% [markdown] lang="ko" of="6262cd93"
# **4. 반쪽 글자.** 이것은 이미 고쳤습니다. 토큰을 따로 디코드한 것과 디토크나이저가 보낸 것을
# 나란히 봅니다.

# %%
print("alone:      ", "".join(smol.tokenizer.decode([token_id]) for token_id in said))
detokenizer = Detokenizer(smol.tokenizer)
print("detokenizer:", "".join(detokenizer.push(token_id) for token_id in said))

# %% [markdown] lang="en"
# ## Your answers
#
# **5. Does streaming reduce latency?** It moves the first text from the end of the answer to its
# beginning, and nothing else: no token exists a moment earlier, and the last one arrives when it
# did before. The group's answer stands, sharpened: streaming lowers the *client's* time to first
# text; the engine's TTFT, ITL and E2E are what they were.
#
# **6. Does `use_cache=False` distort a benchmark?** Yes, twice. The work grows with the square of
# the length, and ITL depends on the position, so even the shape of the result is wrong.

# %% [markdown] lang="ko" of="36fdaf12"
# ## 여러분의 답
#
# **5. 스트리밍은 지연 시간을 줄이는가?** 첫 텍스트를 답의 끝에서 답의 처음으로 옮길 뿐입니다. 어떤
# 토큰도 더 일찍 생기지 않고, 마지막 토큰은 전과 같은 때에 옵니다. 그룹의 답은 맞고, 더 정확하게는
# 이렇습니다. 스트리밍은 *클라이언트가* 첫 텍스트를 볼 때까지의 시간을 줄이며, 엔진의 TTFT, ITL,
# E2E는 그대로입니다.
#
# **6. `use_cache=False`는 벤치마크를 왜곡하는가?** 두 가지로 그렇습니다. 작업량이 길이의 제곱으로
# 늘고, ITL이 위치에 따라 달라져서 결과의 모양까지 틀립니다.

# %% tags=["nbval-ignore-output"]
answer(
    5,
    first_text_streamed_s=streamed.first_text,
    first_text_unstreamed_s=unstreamed.first_text,
    last_text_streamed_s=streamed.last_text,
    last_text_unstreamed_s=unstreamed.last_text,
)

# %% tags=["nbval-ignore-output"]
answer(
    6,
    tokens_computed_without_cache=counted[16, False],
    tokens_computed_with_cache=counted[16, True],
    tokens_per_s_without_cache=speed[16, False],
    tokens_per_s_with_cache=speed[16, True],
    itl_growth_16_to_256_tokens=seconds[-1] / seconds[0],
)

# %% [markdown] lang="en"
# ## The ladder: rung 1
#
# Every notebook from here on ends with the ladder: all rungs so far, on the same eight short
# requests that arrive at once, each in a process of its own. Labkit's own rungs are measured once
# on a machine. Of the newest rung you see two marks, labkit's and the one with your passed parts.
# Look at TTFT: one request after the other means that the last one waits for all before it.

# %% [markdown] lang="ko" of="1d8cf5f2"
# ## 사다리: 첫 번째 단
#
# 이제부터 모든 노트북은 사다리로 끝납니다. 한꺼번에 도착한 짧은 요청 여덟 개로 지금까지의 모든 단을
# 별도의 프로세스에서 측정합니다. labkit의 단은 컴퓨터마다 한 번만 측정합니다. 가장 새로운 단에는
# labkit의 표시와, 통과한 코드를 넣은 표시가 함께 나옵니다. TTFT를 보세요. 요청을 하나씩 처리하면
# 마지막 요청은 앞의 모든 요청을 기다립니다.

# %% tags=["nbval-ignore-output"]
from labkit.workbook.ladder import ladder

ladder("naive")

# %% [markdown] lang="en"
# Your parts serve real requests, too. In a terminal, `python3 -m labkit serve --rung naive --mine`
# starts an OpenAI-compatible server on this rung; its banner says which parts are yours.

# %% [markdown] lang="ko" of="536c439a"
# 직접 만든 코드로 실제 요청도 처리할 수 있습니다. 터미널에서
# `python3 -m labkit serve --rung naive --mine`을 실행하면 이 단의 OpenAI 호환 서버가 시작되고,
# 어느 부분이 직접 만든 코드인지 시작 화면에 나옵니다.

# %% [markdown] lang="en"
# ## In vLLM and Triton Inference Server
#
# - **The token loop** is `EngineCore.step()` in vLLM (`vllm/v1/engine/core.py`): schedule, execute,
#   update, with hundreds of requests in one step. For generation there is no mode without a KV
#   cache; this rung has no counterpart there, which is the point of question 6.
# - **The detokenizer** is vLLM's `IncrementalDetokenizer` (`vllm/v1/engine/detokenizer.py`). The
#   two offsets that you wrote are its slow path; the fast path uses `DecodeStream` of the
#   `tokenizers` library, in Rust. It also holds back stop strings.
# - **Streaming** in vLLM is server-sent events of the OpenAI API. In Triton Inference Server (the
#   server, not the kernel language of the same name) it is a *decoupled* model: one request, many
#   responses, over gRPC or the generate extension's `generate_stream`.
# - **TTFT, ITL and E2E** are histograms in vLLM's `/metrics`. Triton Inference Server reports
#   queue and compute times of a whole request and, for decoupled models, the time to the first
#   *response*; GenAI-Perf (now AIPerf) measures tokens from the client's side.
#
# Next, notebook 02: several requests in one forward pass, *static batching*. First your progress.

# %% [markdown] lang="ko" of="68138c9f"
# ## vLLM과 Triton Inference Server에서는
#
# - **토큰 루프**는 vLLM의 `EngineCore.step()`(`vllm/v1/engine/core.py`)입니다. 스케줄링, 실행, 갱신을
#   하며 한 단계에 수백 개 요청이 들어갑니다. 텍스트 생성에는 KV 캐시(KV cache)가 없는 모드가 아예
#   없습니다. 이 단계에 대응하는 것이 없다는 점이 바로 질문 6의 핵심입니다.
# - **디토크나이저**는 vLLM의 `IncrementalDetokenizer`(`vllm/v1/engine/detokenizer.py`)입니다.
#   여러분이 쓴 offset 두 개는 그중 느린 경로이고, 빠른 경로는 `tokenizers` 라이브러리의
#   `DecodeStream`(Rust)을 씁니다. 정지 문자열(stop string)을 붙들어 두는 일도 합니다.
# - **스트리밍**은 vLLM에서 OpenAI API의 server-sent events입니다. Triton Inference Server(같은
#   이름의 커널 언어가 아니라 서버)에서는 *decoupled* 모델, 즉 요청 하나에 응답 여럿이며 gRPC나
#   generate 확장의 `generate_stream`으로 보냅니다.
# - **TTFT, ITL, E2E**는 vLLM의 `/metrics`에 히스토그램으로 나옵니다. Triton Inference Server는
#   요청 전체의 대기 시간과 계산 시간을, decoupled 모델이면 첫 *응답*까지의 시간도 보고합니다. 토큰 단위는 GenAI-Perf(현재 AIPerf)가 클라이언트 쪽에서 잽니다.
#
# 다음은 노트북 02입니다. 순전파 한 번에 요청 여러 개를 처리하는 *정적 배칭*(static batching)을
# 다룹니다. 먼저 진행 상황을 확인하세요.

# %% tags=["nbval-ignore-output"]
progress()
