# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] lang="en"
# # 11 · The report
#
# A benchmark that nobody can repeat is an opinion with a decimal point. The ten questions that this
# workbook began with came from a study group, with short answers. You have put numbers beside them:
# your own, of your own machine, each with its day. This notebook lays the two side by side and says,
# for each question, whether your numbers **support** the group's answer, **sharpen** it (true, and
# here is what it leaves out), or **correct** it.
#
# There is nothing to write here, and nothing is measured. What you have not run yet stays open, and
# the report says where to run it.
#
# **After this notebook you can**
#
# - answer each of the ten questions in one minute, with a number and the conditions it holds under;
# - say of a verdict which number would overturn it;
# - show a page of your results to others, and compare it with theirs.

# %% [markdown] lang="ko" of="35a18973"
# # 11 · 보고서
#
# 아무도 다시 해 볼 수 없는 벤치마크는 소수점이 붙은 의견일 뿐입니다. 이 워크북을 시작한 열 가지 질문은 어느
# 스터디 그룹에서 나왔고, 짧은 답이 함께 있었습니다. 여러분은 그 옆에 숫자를 놓았습니다. 직접, 자기 장비에서,
# 날짜와 함께 잰 숫자입니다. 이 노트북은 둘을 나란히 놓고, 질문마다 측정한 값이 그룹의 답을 **뒷받침**하는지,
# **더 정확하게** 하는지(맞지만 빠진 것이 있다), 아니면 **바로잡는지** 말해 줍니다.
#
# 여기서는 쓸 코드도, 새로 측정할 것도 없습니다. 아직 실행하지 않은 것은 열린 채로 두고, 어디서 실행하면 되는지
# 알려 줍니다.
#
# **이 노트북을 마치면**
#
# - 열 가지 질문 각각에 숫자 하나와 그것이 성립하는 조건을 들어 1분 안에 답할 수 있습니다.
# - 어떤 숫자가 나오면 결론이 뒤집히는지 말할 수 있습니다.
# - 결과를 한 페이지로 보여 주고 다른 사람의 것과 비교할 수 있습니다.

# %% header minutes=8

# %% [markdown] lang="en"
# ## Where you stand
#
# `answer`, `predict` and `compare` in the notebooks kept all of this under `my/`. Your own copy of
# this notebook shows your own numbers. (The solutions keep nothing. What they show is a sample: the
# numbers of one machine on one day, with predictions that are made up.)

# %% [markdown] lang="ko" of="2a4aaff4"
# ## 지금까지의 결과
#
# 노트북의 `answer`, `predict`, `compare`가 이 모든 것을 `my/`에 저장했습니다. 이 노트북의 여러분 사본에는
# 여러분의 숫자가 나옵니다. (풀이 노트북은 아무것도 저장하지 않습니다. 거기 보이는 것은 예시입니다. 어느 날
# 장비 한 대에서 나온 숫자이고, 예측은 지어낸 것입니다.)

# %% tags=["nbval-ignore-output"]
from labkit.workbook.ten_questions.shown import left_open, page, question, summary, what_if

summary()

# %% [markdown] lang="en"
# ## The ten questions
#
# One cell each. Before you run it, say your answer aloud, in one sentence with one number (the list
# above has the questions). The line above the cell is for a group: it has no solution.
#
# *You move the API into a process of its own and the tokens/s don't change. What did you buy?*

# %% [markdown] lang="ko" of="3a800409"
# ## 열 가지 질문
#
# 질문마다 셀이 하나입니다. 실행하기 전에 숫자 하나가 들어간 한 문장으로 답을 소리 내어 말해 보세요(질문은 위
# 목록에 있습니다). 셀 위의 문장은 함께 이야기할 거리이고 정답은 없습니다.
#
# *API를 별도 프로세스로 옮겼는데 tokens/s가 그대로입니다. 무엇을 얻었습니까?*

# %% tags=["nbval-ignore-output"]
question(1)

# %% [markdown] lang="en"
# *`nvidia-smi` says 98%. Name two measurements that would show the card is badly used all the same.*

# %% [markdown] lang="ko" of="c5d623f8"
# *`nvidia-smi`가 98%라고 합니다. 그래도 카드를 잘못 쓰고 있음을 보여 줄 측정 두 가지는 무엇입니까?*

# %% tags=["nbval-ignore-output"]
question(2)

# %% [markdown] lang="en"
# *A colleague asks for "the right batch size" of a service. What do you ask back?*

# %% [markdown] lang="ko" of="0edea968"
# *동료가 서비스에 "알맞은 배치 크기"를 묻습니다. 무엇을 되물어야 합니까?*

# %% tags=["nbval-ignore-output"]
question(3)

# %% [markdown] lang="en"
# *Throughput is up by a tenth since yesterday, and the complaints have doubled. Which curve do you draw?*

# %% [markdown] lang="ko" of="f7cb10d1"
# *어제보다 처리량이 10% 늘었는데 불만은 두 배가 됐습니다. 어떤 곡선을 그려 봐야 합니까?*

# %% tags=["nbval-ignore-output"]
question(4)

# %% [markdown] lang="en"
# *For which clients is streaming worth nothing?*

# %% [markdown] lang="ko" of="70640a97"
# *스트리밍이 아무 소용 없는 클라이언트는 누구입니까?*

# %% tags=["nbval-ignore-output"]
question(5)

# %% [markdown] lang="en"
# *A paper reports a speed-up of 12 over a baseline without a KV cache. What is left of it?*

# %% [markdown] lang="ko" of="450af5f9"
# *어떤 논문이 KV 캐시가 없는 기준 대비 12배 빨라졌다고 합니다. 그중 무엇이 남습니까?*

# %% tags=["nbval-ignore-output"]
question(6)

# %% [markdown] lang="en"
# *Which of the two would you give up first, for chat? For a nightly job?*

# %% [markdown] lang="ko" of="5ef3f180"
# *둘 중 하나를 포기해야 한다면, 채팅에서는 무엇을 포기합니까? 밤에 도는 작업에서는요?*

# %% tags=["nbval-ignore-output"]
question(7)

# %% [markdown] lang="en"
# *Which field of a request is the last that you would drop, and what breaks first without it?*

# %% [markdown] lang="ko" of="c1b86234"
# *요청의 필드 중 마지막까지 남겨야 할 것은 무엇이고, 없으면 무엇이 가장 먼저 깨집니까?*

# %% tags=["nbval-ignore-output"]
question(8)

# %% [markdown] lang="en"
# *The unit that can't be interrupted: what is it in the server that you run today?*

# %% [markdown] lang="ko" of="5b63a3b2"
# *지금 운영하는 서버에서 중간에 끊을 수 없는 단위는 무엇입니까?*

# %% tags=["nbval-ignore-output"]
question(9)

# %% [markdown] lang="en"
# *Your service is never saturated. Do you switch priorities on?*

# %% [markdown] lang="ko" of="22375371"
# *여러분의 서비스는 포화된 적이 없습니다. 우선순위를 켜겠습니까?*

# %% tags=["nbval-ignore-output"]
question(10)

# %% [markdown] lang="en"
# ## What would overturn it
#
# A verdict is worth as much as the number that could have turned out otherwise. Each one above comes
# from a few rules, a ratio and a range, in `labkit/workbook/ten_questions/questions.py`. Feed them
# with numbers that you make up. First a streamed answer as it should be: the first text comes 20 times
# sooner, the last one when it did.

# %% [markdown] lang="ko" of="7ddb6469"
# ## 무엇이 결론을 뒤집는가
#
# 결론은 다르게 나올 수도 있었던 숫자만큼의 가치가 있습니다. 위의 결론은 모두 비율 하나와 범위 하나로 된 몇 가지
# 규칙에서 나옵니다(`labkit/workbook/ten_questions/questions.py`). 지어낸 숫자를 넣어 봅시다. 먼저 정상적인
# 스트리밍입니다. 첫 텍스트는 20배 빨리, 마지막 텍스트는 원래 시각에 옵니다.

# %%
what_if(
    5, "01",
    first_text_streamed_s=0.25, first_text_unstreamed_s=5,
    last_text_streamed_s=5, last_text_unstreamed_s=5,
)  # fmt: skip

# %% [markdown] lang="en"
# Now the last text comes sooner too. No server can do that by streaming, so the measurement is what
# one should doubt:

# %% [markdown] lang="ko" of="ce570d33"
# 이번에는 마지막 텍스트도 빨라집니다. 스트리밍만으로 그럴 수 있는 서버는 없으므로 의심할 것은 측정입니다.

# %%
what_if(
    5, "01",
    first_text_streamed_s=0.25, first_text_unstreamed_s=5,
    last_text_streamed_s=2, last_text_unstreamed_s=5,
)  # fmt: skip

# %% [markdown] lang="en"
# And a machine on which even one stream gains from a process of its own. Nothing is wrong with such
# a number; the group's "a small service may do better simple" was a statement about other machines.

# %% [markdown] lang="ko" of="335f1079"
# 그리고 스트림이 하나뿐인데도 별도 프로세스로 이득을 보는 장비입니다. 이 숫자에는 아무 잘못이 없습니다. "작은
# 서비스는 단순한 편이 나을 수 있다"는 그룹의 답이 다른 장비에 대한 말이었던 것입니다.

# %%
what_if(
    1, "07",
    process_over_in_process_1_stream_cpu=1.4, process_over_in_process_64_streams_paced=1.6,
)  # fmt: skip

# %% [markdown] lang="en"
# ## What remains open
#
# (In the solutions that is everything: the sample doesn't count.)

# %% [markdown] lang="ko" of="834aefbf"
# ## 남은 것
#
# (풀이 노트북에서는 전부입니다. 예시는 세지 않습니다.)

# %% tags=["nbval-ignore-output"]
left_open()

# %% [markdown] lang="en"
# ## One page to show
#
# The same as one HTML file, with all pictures, the machine and the versions. It needs no network and
# runs no script, so it can be mailed, printed, or put on a wiki. Look through it before you do: it
# names your processor and the days on which you worked.

# %% [markdown] lang="ko" of="89f7813a"
# ## 보여 줄 한 페이지
#
# 같은 내용에 모든 그림, 장비, 버전을 더한 HTML 파일 하나입니다. 네트워크도 스크립트도 필요 없어서 메일로 보내거나
# 인쇄하거나 위키에 올릴 수 있습니다. 그전에 한번 훑어보세요. 프로세서 이름과 작업한 날짜가 들어 있습니다.

# %% tags=["nbval-ignore-output"]
page()

# %% [markdown] lang="en"
# ### In a study group
#
# - **Before**: everybody runs `python3 -m labkit report` and sends the file. Nobody explains theirs yet.
# - **Ten rounds of six minutes**, a question each. Someone reads the group's answer. Each says their
#   own number, then the machine, in that order: it is the surprise that one remembers.
# - **Look for the outlier.** Two machines that disagree are worth more than five that agree. Is it the
#   memory bandwidth, the number of cores, the part that was yours and not labkit's? The measured
#   roofs of notebook 00 explain more than the processor's name does.
# - **Write one sentence** for each question that all can sign, with its condition ("when there is a
#   line", "at these lengths"). That is your group's short answer, and it may well replace ours.
# - A prediction that missed by ten is the best contribution to an evening. Ask what it left out.

# %% [markdown] lang="ko" of="14285c8a"
# ### 스터디 그룹에서
#
# - **미리**: 모두 `python3 -m labkit report`를 실행해 파일을 보냅니다. 설명은 아직 하지 않습니다.
# - **6분씩 열 번**, 질문 하나씩 진행합니다. 한 사람이 그룹의 답을 읽고, 각자 자기 숫자를 먼저, 장비를 나중에
#   말합니다. 놀란 것이 기억에 남습니다.
# - **튀는 값을 찾으세요.** 서로 다른 장비 두 대가 똑같은 다섯 대보다 값집니다. 메모리 대역폭 때문인지, 코어
#   수인지, labkit이 아니라 직접 쓴 코드 때문인지 따져 보세요. 프로세서 이름보다 노트북 00에서 잰 두 지붕이 더 많은
#   것을 설명합니다.
# - 질문마다 모두가 동의할 **한 문장**을 조건과 함께 쓰세요("줄이 있을 때", "이 길이에서는"). 그것이 여러분 그룹의
#   짧은 답이고, 우리 답을 대신해도 좋습니다.
# - 열 배 빗나간 예측이 그날 저녁의 가장 큰 기여입니다. 무엇을 빠뜨렸는지 물어보세요.

# %% [markdown] lang="en"
# ## In vLLM and Triton Inference Server
#
# The same questions, put to the servers that people run, and where their answer stands. (Triton is
# the inference server here, not the kernel language.)
#
# | question | vLLM | Triton Inference Server |
# | --- | --- | --- |
# | 1 process | the engine core is a process of its own, reached over ZeroMQ; `VLLM_ENABLE_V1_MULTIPROCESSING=0` puts it back for the offline `LLM` | backends share the server's process; a model of the Python backend has a process of its own, over shared memory |
# | 2 CPU and GPU | asynchronous scheduling, on by default, plans the next step while the card computes | an ensemble places each model on CPU or GPU (`instance_group`) |
# | 3, 4 batch | `--max-num-batched-tokens`, `--max-num-seqs` | `max_batch_size` and `dynamic_batching`, counted in requests; Model Analyzer searches for the best under a latency bound |
# | 5 streaming | server-sent events | a decoupled model, one request and many responses |
# | 6 cache | always on; there is no such switch | the backend's affair |
# | 7 continuous | the scheduler's only mode | not in the core; "in-flight batching" of the TensorRT-LLM backend |
# | 8 identity | `request_id`, abort when the client goes, `X-Request-Id` | a request id, cancellation; its *sequence id* ties requests to a stateful model, which is something else |
# | 9 a worker | chunked prefill bounds a step | more instances of a model; what has begun is not interrupted |
# | 10 priority | `--scheduling-policy priority` | `priority_levels` and queue policies in front of the model |
#
# Their own reports: `vllm bench serve --save-result` writes the JSON of a run, and Triton's Model
# Analyzer writes a page with plots for each configuration that it tried. Neither asks you to predict.
#
# That was the last notebook. What is yours now: a server that you can read to its end.

# %% [markdown] lang="ko" of="ae95af47"
# ## vLLM과 Triton Inference Server에서는
#
# 같은 질문을 실제로 쓰는 서버에 던지면 답이 어디에 있는지 정리했습니다. (여기서 Triton은 커널 언어가 아니라 추론
# 서버입니다.)
#
# | 질문 | vLLM | Triton Inference Server |
# | --- | --- | --- |
# | 1 프로세스 | 엔진 코어가 별도 프로세스이고 ZeroMQ로 통신. 오프라인 `LLM`은 `VLLM_ENABLE_V1_MULTIPROCESSING=0`으로 다시 한 프로세스 | 백엔드는 서버 프로세스 안에 있음. Python 백엔드의 모델은 공유 메모리로 통신하는 별도 프로세스 |
# | 2 CPU와 GPU | 비동기 스케줄링(기본으로 켜짐)은 카드가 계산하는 동안 다음 단계를 계획 | ensemble이 모델마다 CPU나 GPU에 배치(`instance_group`) |
# | 3, 4 배치 | `--max-num-batched-tokens`, `--max-num-seqs` | `max_batch_size`와 `dynamic_batching`은 요청 수로 셈. Model Analyzer가 지연 시간 한도 안에서 가장 좋은 값을 찾음 |
# | 5 스트리밍 | server-sent events | decoupled 모델. 요청 하나에 응답 여러 개 |
# | 6 캐시 | 항상 켜져 있고 끄는 스위치가 없음 | 백엔드가 알아서 함 |
# | 7 연속 배칭 | 스케줄러의 유일한 방식 | 코어에는 없음. TensorRT-LLM 백엔드의 "in-flight batching" |
# | 8 식별 | `request_id`, 클라이언트가 떠나면 abort, `X-Request-Id` | 요청 id와 취소. *sequence id*는 상태가 있는 모델에 요청들을 묶는 것으로, 다른 개념 |
# | 9 워커 | chunked prefill이 한 단계를 제한 | 모델 인스턴스를 늘림. 시작한 일은 중단하지 않음 |
# | 10 우선순위 | `--scheduling-policy priority` | 모델 앞의 `priority_levels`와 큐 정책 |
#
# 두 서버의 보고서도 있습니다. `vllm bench serve --save-result`는 실행 결과를 JSON으로 쓰고, Triton의 Model
# Analyzer는 시험한 구성마다 그래프가 있는 페이지를 만듭니다. 어느 쪽도 예측을 묻지는 않습니다.
#
# 마지막 노트북이었습니다. 이제 끝까지 읽을 수 있는 서버 하나가 여러분의 것입니다.
