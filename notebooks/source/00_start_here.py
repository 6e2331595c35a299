# %% [markdown] lang="en"
# # 00 · Start here
#
# You are going to build a server for language models, piece by piece, on the machine in front of you, with a real model. Each notebook adds one piece, and an experiment shows in your own numbers what that piece is for.
#
# In this notebook you
# - see whether the machine is ready, and measure its two limits: how fast it computes and how fast it reads memory;
# - find out which of the two holds a language model back;
# - watch a real model answer, one token at a time;
# - get to know the exercises: `check`, `hint`, `reset`.
#
# Run a cell with Shift+Enter. This is your own copy, in `my/`: write in it what you like.

# %% [markdown] lang="ko" of="d98ce5e9"
# # 00 · 여기서 시작하세요
#
# 지금 쓰는 컴퓨터에서 실제 모델로 언어 모델 서버를 한 조각씩 만들어 갑니다. 노트북마다 조각을 하나 더하고, 그 조각이 왜 필요한지를 실험으로 직접 측정해 확인합니다.
#
# 이 노트북에서 할 일은 다음과 같습니다.
# - 컴퓨터가 준비되었는지 확인하고, 두 가지 한계, 즉 계산 속도와 메모리 읽기 속도를 측정합니다.
# - 둘 중 어느 쪽이 언어 모델의 발목을 잡는지 알아봅니다.
# - 실제 모델이 토큰(token)을 하나씩 만들며 대답하는 모습을 봅니다.
# - 실습에 쓰는 `check`, `hint`, `reset`을 익힙니다.
#
# 셀은 Shift+Enter로 실행합니다. 이 노트북은 `my/` 아래에 있는 개인 사본이므로 마음껏 고쳐도 됩니다.

# %% header minutes=15

# %% [markdown] lang="en"
# ## Language
#
# The same notebooks with Korean prose (한국어) are in `ko/`: open `ko/00_start_here.ipynb` in the file browser on the left. Code and plots are the same in both. The line below chooses the language of hints and checks in every notebook; take the `#` away to use it.

# %% [markdown] lang="ko" of="8a6d4197"
# ## 언어
#
# 한국어 노트북은 `my/ko/`에, 영어 노트북은 `my/`에 있습니다([English](../00_start_here.ipynb)). 코드와 그래프는 같습니다. 아래 줄은 모든 노트북의 힌트와 검사 메시지에 쓸 언어를 고릅니다. 쓰려면 `#`을 지우고 실행하세요.

# %%
# language("ko")

# %% [markdown] lang="en"
# ## Is the machine ready?
#
# Every line should say OK. A WARN can wait; a FAIL comes with what to do about it.

# %% [markdown] lang="ko" of="a914a85f"
# ## 준비가 되었는지 확인하기
#
# 모든 줄이 OK여야 합니다. WARN은 나중에 봐도 되고, FAIL이면 옆에 적힌 대로 해결하세요.

# %% tags=["nbval-ignore-output"]
doctor()

# %% [markdown] lang="en"
# ## Two roofs over every step
#
# A model makes a token in one *forward pass*: numbers (the weights) come from memory, and the processor multiplies them with what it has computed of the tokens so far. Both happen at the same time, so a pass takes as long as the slower of the two. That is the *roofline* model:
#
# ```text
#   FLOP/s
#     ^
#     |                 ______________________  compute roof: the processor does no more
#     |               /            o
#     |             /              many tokens in one pass
#     |           /
#     |         /   memory roof: the data comes no faster
#     |       /
#     |     / o
#     |   /   one token in one pass
#     | /
#     +------------------------------------------>  FLOP per byte moved
# ```
#
# *One token in one pass lies under the slope: the processor waits for memory. Many tokens lie under the flat roof: memory waits for the processor.*
#
# How far to the right a pass lies is its *intensity*: FLOP done for each byte moved. A weight of four bytes that is used for one token gives 2 FLOP, so 0.5 FLOP per byte. Used for 64 tokens at once, it gives 32. This one ratio is behind batching, behind the KV cache, and behind most of what you will build.

# %% [markdown] lang="ko" of="5df5974d"
# ## 모든 단계 위에 있는 두 개의 지붕
#
# 모델은 순전파(forward pass) 한 번으로 토큰을 만듭니다. 메모리에서 숫자(가중치)를 읽어 오고, 프로세서가 그것을 토큰에서 계산해 온 값과 곱합니다. 두 일은 동시에 진행되므로 걸리는 시간은 더 느린 쪽이 정합니다. 이것이 루프라인(roofline) 모델입니다.
#
# ```text
#   FLOP/s
#     ^
#     |                 ______________________  compute roof: the processor does no more
#     |               /            o
#     |             /              many tokens in one pass
#     |           /
#     |         /   memory roof: the data comes no faster
#     |       /
#     |     / o
#     |   /   one token in one pass
#     | /
#     +------------------------------------------>  FLOP per byte moved
# ```
#
# *토큰 하나를 처리하는 순전파는 비탈 아래에 있습니다. 프로세서가 메모리를 기다립니다. 토큰 여러 개를 한 번에 처리하면 평평한 지붕 아래로 갑니다. 이번에는 메모리가 프로세서를 기다립니다.*
#
# 가로 위치는 연산 강도(intensity), 즉 옮긴 바이트당 연산 수(FLOP per byte)입니다. 4바이트 가중치를 토큰 하나에 쓰면 2 FLOP이므로 바이트당 0.5 FLOP입니다. 토큰 64개에 한꺼번에 쓰면 32가 됩니다. 배칭(batching)도, KV 캐시(KV cache)도, 앞으로 만들 것의 대부분도 이 비율 하나에서 나옵니다.

# %% [markdown] lang="en"
# ## A warm-up exercise
#
# Exercises are holes cut in `labkit`, the server that you will have at the end. You get the signature and the docstring, and write the body. Try all the moves on this one:
#
# 1. Run the check as it stands. It says *not attempted*: nothing breaks when you skip an exercise, and the notebook goes on with labkit's own code.
# 2. Write something wrong first, `return num_flops / peak_flops, "compute"`, say. Run the cell, then the check. It says what broke, on the smallest input that shows it. A mistake that people often make is called by its name: make a tie "compute", and see.
# 3. Open a hint below the check, or ask for one.
# 4. Get it right. A part that passes is saved in `my/parts/`, and from then on experiments run on it.

# %% [markdown] lang="ko" of="61edda03"
# ## 몸풀기 실습
#
# 실습은 완성된 서버인 `labkit`에 뚫어 놓은 구멍입니다. 함수 시그니처와 docstring이 주어지고, 본문을 직접 씁니다. 이 실습으로 사용법을 모두 익혀 보세요.
#
# 1. 아무것도 쓰지 않고 검사(check) 셀을 실행합니다. "아직 시도하지 않았습니다"라고 나옵니다. 실습을 건너뛰어도 문제는 없고, 노트북은 labkit의 코드로 계속 진행됩니다.
# 2. 먼저 일부러 틀려 봅니다. 예를 들어 `return num_flops / peak_flops, "compute"`라고 쓰고 셀과 검사 셀을 차례로 실행합니다. 무엇이 깨졌는지를 가장 작은 입력으로 보여 줍니다. 흔한 실수는 무슨 실수인지도 알려 줍니다. 두 시간이 같을 때 "compute"를 돌려주도록 써서 확인해 보세요.
# 3. 검사 셀 아래의 힌트를 펼치거나 명령으로 요청합니다.
# 4. 올바르게 고칩니다. 통과한 코드는 `my/parts/`에 저장되고, 그때부터 실험은 그 코드로 실행됩니다.

# %% exercise="00.1"

# %% [markdown] lang="en"
# The commands once more. Take the `#` away from one line at a time and run the cell. `progress()` shows how far you are; it is kept on disk, so restarting the kernel changes nothing.

# %% [markdown] lang="ko" of="e8404c17"
# 명령을 정리하면 다음과 같습니다. 한 줄씩 `#`을 지우고 실행해 보세요. `progress()`는 진행 상황을 보여 줍니다. 디스크에 저장되므로 커널을 다시 시작해도 그대로입니다.

# %% tags=["nbval-ignore-output"]
progress()
# hint("00.1")      # the next hint; the second time, the one after it
# solution("00.1")  # labkit's own code
# reset("00.1")     # the empty cell again; a passed part is kept in my/backups/

# %% [markdown] lang="en"
# ## Experiment: where does a language model lie under the roofs?
#
# Everything below runs on a GPU if there is one, else on the CPU. **Predict** how fast it reads memory. A laptop has memory of 50 to 120 GB/s on its data sheet, a cloud machine shares a larger number with its neighbours, and a data-centre GPU has 2,000 to 5,000.

# %% [markdown] lang="ko" of="dfdb1739"
# ## 실험: 언어 모델은 지붕 아래 어디에 있을까?
#
# 아래의 모든 것은 GPU가 있으면 GPU에서, 없으면 CPU에서 실행됩니다. 메모리를 얼마나 빨리 읽을지 **예측**해 보세요. 노트북 컴퓨터의 사양서에는 50에서 120 GB/s로 적혀 있습니다. 클라우드 서버는 값이 더 크지만 다른 사용자와 나눠 쓰고, 데이터센터 GPU는 2,000에서 5,000 GB/s입니다.

# %% tags=["nbval-ignore-output"]
from labkit.model import best_device

device = best_device()  # "cuda" where there is a GPU; LABKIT_DEVICE chooses another
on_gpu = device.startswith("cuda")
predict("00.bandwidth", low=0, high=6000 if on_gpu else 150, unit="GB/s")

# %% [markdown] lang="en"
# **Run.** Memory is measured by multiplying a matrix of 512 MiB with one vector, so that every number is read once, as decoding does; compute by a product of two large matrices. Both in float32, the best of several runs.

# %% [markdown] lang="ko" of="b3c7310c"
# **실행.** 메모리는 512 MiB 행렬에 벡터 하나를 곱해서 측정합니다. 디코드(decode)처럼 모든 숫자를 한 번씩 읽기 때문입니다. 계산은 큰 행렬 두 개의 곱으로 측정합니다. 둘 다 float32로, 여러 번 실행한 것 중 가장 좋은 값입니다.

# %% tags=["nbval-ignore-output"]
from labkit.measure import roofline

machine = roofline.measure_machine(device)
print(f"device:  {device}")
print(f"memory:  {machine.bandwidth / 1e9:.1f} GB/s")
print(f"compute: {machine.peak_flops / 1e9:.0f} GFLOP/s")
print(f"ridge:   {machine.ridge:.1f} FLOP per byte, where the two roofs meet")

# %% tags=["nbval-ignore-output"]
compare("00.bandwidth", machine.bandwidth / 1e9, "GB/s")

# %% [markdown] lang="en"
# Now the model: SmolLM2-135M-Instruct, small enough for any laptop and built like its large relatives. One step of decoding reads every weight once and uses it for one token.

# %% [markdown] lang="ko" of="c9c2ccd1"
# 이제 모델을 불러옵니다. SmolLM2-135M-Instruct는 어떤 노트북 컴퓨터에서도 돌아갈 만큼 작지만 구조는 큰 모델과 같습니다. 디코드 한 단계는 모든 가중치를 한 번씩 읽어서 토큰 하나에 씁니다.

# %% tags=["nbval-ignore-output"]
from labkit.model import load

loaded = load("smollm2-135m", device=device)
decode = roofline.forward_cost(loaded.model.config, num_new=1, num_cached=64)
print(f"one decode step moves {decode.num_bytes / 1e6:.0f} MB")
print(f"and does {decode.num_flops / 1e9:.2f} GFLOP: {decode.intensity:.2f} FLOP per byte")

# %% [markdown] lang="en"
# **Predict.** Without a cache, the server of notebook 01 sends the whole text so far through the model for each new token. How many times longer does a pass over 64 tokens take than a pass over 1? It does 64 times the arithmetic.

# %% [markdown] lang="ko" of="d505e8e5"
# **예측.** 캐시가 없는 노트북 01의 서버는 새 토큰마다 지금까지의 텍스트 전체를 모델에 넣습니다. 토큰 64개의 순전파는 1개의 순전파보다 몇 배 오래 걸릴까요? 연산량은 64배입니다.

# %% tags=["nbval-ignore-output"]
predict("00.ratio", low=1, high=64, unit="times")

# %% [markdown] lang="en"
# **Run.** Each pass is timed and drawn below the least time that `step_time` gives for it: yours, if you have passed the exercise.

# %% [markdown] lang="ko" of="e3cd5a4d"
# **실행.** 순전파마다 시간을 재고, `step_time`이 계산한 최소 시간과 함께 그립니다. 실습을 통과했다면 직접 만든 `step_time`을 씁니다.

# %% tags=["nbval-ignore-output"]
from labkit.workbook.plots import Step, roofline_figure

step_time = use("00.1")
passes = {
    "1 token, 64 in the cache (decode)": (1, 64),
    "64 tokens, no cache": (64, 0),
    "256 tokens, no cache": (256, 0),
}
steps = [
    Step(
        name,
        roofline.forward_cost(loaded.model.config, num_new, num_cached),
        roofline.measure_forward(loaded.model, num_new, num_cached),
    )
    for name, (num_new, num_cached) in passes.items()
]
roofline_figure(machine, steps, step_time)

# %% tags=["nbval-ignore-output"]
compare("00.ratio", steps[1].seconds / steps[0].seconds, "times")

# %% [markdown] lang="en"
# **Read it.** Hollow marks are what the roofs allow, filled ones what was measured. The decode step does little arithmetic and still takes long: it waits for the weights. The pass over 64 tokens does 64 times the arithmetic, on the same weights, read once, and takes only a few times longer. Two things follow, and the rest of the workbook is made of them:
#
# - Computing old tokens again is not free: past the ridge each of them costs time. That is what a KV cache saves.
# - Once there is a cache, the processor idles while it waits for weights. Serving many requests in one pass uses the same weights for all. That is what batching is for.
#
# The gap between a filled and a hollow mark is work that the roofline counts as free: activations, attention over small matrices, hundreds of calls in Python for each pass.

# %% [markdown] lang="ko" of="52f01e95"
# **읽는 법.** 속이 빈 표시는 지붕이 허용하는 값, 채워진 표시는 측정값입니다. 디코드 단계는 연산이 적은데도 오래 걸립니다. 가중치를 기다리기 때문입니다. 토큰 64개의 순전파는 한 번 읽은 같은 가중치로 64배의 연산을 하면서도 시간은 몇 배밖에 늘지 않습니다. 여기서 두 가지를 알 수 있고, 나머지 노트북은 모두 여기에서 출발합니다.
#
# - 이전 토큰을 다시 계산하는 일은 공짜가 아닙니다. 두 지붕이 만나는 점을 넘으면 토큰마다 시간이 듭니다. KV 캐시가 아껴 주는 것이 이것입니다.
# - 캐시가 있으면 프로세서는 가중치를 기다리며 놉니다. 여러 요청을 한 번의 순전파로 처리하면 같은 가중치를 모두에게 쓸 수 있습니다. 배칭을 하는 이유입니다.
#
# 채워진 표시와 빈 표시 사이의 차이는 루프라인이 공짜로 치는 일입니다. 활성값(activation), 작은 행렬의 어텐션, 순전파마다 수백 번씩 일어나는 파이썬 호출이 여기에 들어갑니다.

# %% [markdown] lang="en"
# ## One streamed answer
#
# The engine below is rung 1, which you take apart in notebook 01: one request at a time, no cache, each token sent as soon as it exists. Watch the rhythm.

# %% [markdown] lang="ko" of="79e90756"
# ## 스트리밍으로 답 하나 받기
#
# 아래 엔진은 노트북 01에서 뜯어볼, 사다리의 첫 번째 단(rung 1)입니다. 요청을 한 번에 하나씩, 캐시 없이 처리하고, 토큰이 생기는 즉시 보냅니다. 글자가 나오는 리듬을 보세요.

# %% tags=["nbval-ignore-output"]
import time

from labkit.engine.naive import NaiveEngine
from labkit.engine.request import Request
from labkit.model.detokenizer import Detokenizer

question = "In one sentence: why do servers batch requests?"
request = Request("first", loaded.encode_chat(question), max_tokens=48)
engine = NaiveEngine(loaded.model, loaded.eos_token_ids)
detokenizer = Detokenizer(loaded.tokenizer)

start = time.perf_counter()
engine.add(request)
while engine.has_unfinished():
    for event in engine.step():
        print(detokenizer.push(event.token_id), end="", flush=True)
seconds = time.perf_counter() - start
print(detokenizer.flush())

tokens_per_s = len(request.output_token_ids) / seconds
print(f"\n{len(request.output_token_ids)} tokens in {seconds:.1f} s, {tokens_per_s:.1f} tokens/s")

# %% [markdown] lang="en"
# ## The ladder
#
# Each rung is a complete engine, faster or fairer than the one before: `naive` (01), `static` (02), `cached` (03), `paged` (04), `continuous` (06), `preemptive` (08). From 01 on a notebook ends with `ladder(...)`, which measures all rungs so far on one small workload, your own parts beside labkit's. Here is where rung 1 stands, below what the two roofs of your machine would allow at this length of text. The ceilings are modelled, for float32: no float32 engine reaches them, and the distance to them is what you are going to work on.

# %% [markdown] lang="ko" of="1b924aea"
# ## 사다리
#
# 사다리의 단(rung)마다 하나의 완전한 엔진이 있고, 앞 단보다 더 빠르거나 더 공정합니다. `naive`(01), `static`(02), `cached`(03), `paged`(04), `continuous`(06), `preemptive`(08)입니다. 01부터는 노트북 끝에 `ladder(...)`가 있어서 지금까지의 모든 단을 작은 작업 하나로 측정하고, 직접 만든 코드를 labkit의 코드와 나란히 보여 줍니다. 아래 그림은 첫 번째 단의 위치와, 이 길이의 텍스트에서 두 지붕이 허용하는 한계를 보여 줍니다. 한계는 측정값이 아니라 float32 기준으로 루프라인에서 계산한 값(modelled)이라 float32 엔진은 닿지 못합니다. 그 거리를 줄이는 것이 앞으로 할 일입니다.

# %% tags=["nbval-ignore-output"]
from labkit.workbook.plots import Rung, ladder_figure

length = len(request.token_ids)
one = roofline.forward_cost(loaded.model.config, num_new=1, num_cached=length)
alone, _ = step_time(one.num_flops, one.num_bytes, machine.peak_flops, machine.bandwidth)
crowd = one.num_flops / machine.peak_flops  # the weights are read once for very many requests
rungs = [
    Rung("rung 1: no cache,\none request", tokens_per_s, "measured"),
    Rung("memory roof: a cache,\none request", 1 / alone, "modelled"),
    Rung("compute roof: a cache,\nmany requests at once", 1 / crowd, "modelled"),
]
ladder_figure("Rung 1 below the ceilings of this machine", rungs)

# %% [markdown] lang="en"
# ## Three routes
#
# - **tour**: read, predict, run the experiments on labkit's code, write nothing. For an evening, or for a first meeting of a study group.
# - **core**: the tour and the exercises marked *core*, the ones without which the rest can't be understood.
# - **all**: every exercise, *go further* included.
#
# They are meant to be done in order, and don't have to be: every notebook from 02 on begins with a recap of three minutes, and what you skip runs on labkit's own code. Short of time? **04 → 06 → 08**: paged memory, continuous batching, priorities.

# %% [markdown] lang="ko" of="9fd3335f"
# ## 세 가지 경로
#
# - **둘러보기(tour)**: 읽고, 예측하고, labkit의 코드로 실험만 실행합니다. 코드는 쓰지 않습니다. 하루 저녁이나 스터디 첫 모임에 알맞습니다.
# - **핵심(core)**: 둘러보기에 *핵심* 실습을 더합니다. 이것을 빼면 나머지를 이해할 수 없는 실습들입니다.
# - **전체(all)**: *더 나아가기*까지 모든 실습을 합니다.
#
# 순서대로 하도록 만들었지만 꼭 그럴 필요는 없습니다. 02부터는 모든 노트북이 3분짜리 요약으로 시작하고, 건너뛴 부분은 labkit의 코드로 실행됩니다. 시간이 부족하다면 **04 → 06 → 08**, 즉 페이지 단위 메모리(paged memory), 연속 배칭(continuous batching), 우선순위만 해도 됩니다.

# %% tags=["nbval-ignore-output"]
from labkit.workbook.routes import routes

routes()

# %% [markdown] lang="en"
# ## In vLLM and Triton Inference Server
#
# | here | vLLM | Triton Inference Server |
# | --- | --- | --- |
# | `doctor` | `vllm collect-env`, the report that a bug ticket asks for | `/v2/health/ready`, and the start-up log with the state of each model |
# | measured passes | `vllm bench latency`, `vllm bench throughput` | `perf_analyzer` against the running server |
# | a streamed answer | server-sent events of the OpenAI-compatible server | a *decoupled* model: many responses to one request, over gRPC streaming or `generate_stream` |
#
# Neither draws a roofline of the model for you. (vLLM's profiling pass at start-up is about memory: what the model leaves of `gpu_memory_utilization` goes to the KV cache.) What this notebook leaves out: lower precision, and more than one request.
#
# **Next:** `01_streaming_without_cache.ipynb`, where you write the engine that you have just watched.

# %% [markdown] lang="ko" of="8fa215d5"
# ## vLLM과 Triton Inference Server에서는
#
# | 여기 | vLLM | Triton Inference Server |
# | --- | --- | --- |
# | `doctor` | `vllm collect-env`. 버그를 신고할 때 첨부하는 보고서 | `/v2/health/ready`, 그리고 모델별 상태가 나오는 시작 로그 |
# | 순전파 시간 측정 | `vllm bench latency`, `vllm bench throughput` | 실행 중인 서버를 측정하는 `perf_analyzer` |
# | 스트리밍 응답 | OpenAI 호환 서버의 server-sent events | *decoupled* 모델. 요청 하나에 응답 여러 개를 gRPC 스트리밍이나 `generate_stream`으로 보냄 |
#
# 둘 다 모델의 루프라인을 그려 주지는 않습니다. 하지만 같은 계산이 쓰입니다. vLLM은 시작할 때 순전파를 한 번 실행해 모델에 필요한 메모리를 재고, 남은 메모리를 KV 캐시에 씁니다. 이 노트북에서 다루지 않은 것은 낮은 정밀도와 둘 이상의 요청입니다.
#
# **다음:** `01_streaming_without_cache.ipynb`에서 방금 본 엔진을 직접 만듭니다.
