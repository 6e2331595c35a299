# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown] lang="en"
# # 07 · Requests and processes
#
# November 2024, vLLM, issue 10087: whoever added any middleware function to the server noticed
# that clients could hang up, and the engine went on computing their answers. The server asked its
# web framework "is the client gone?", and behind that kind of middleware the framework said "no"
# for ever. Nothing crashed. The GPU was simply busy for people who had left.
#
# A scheduler (notebook 06) is one half of a server. The other half is knowing, for each request and
# at every moment, who waits for it, where it is, and how it ends.
#
# **After this notebook you can**
#
# - follow a request from the socket to its blocks, and end it cleanly in whatever state it is;
# - hold stop strings back without a leak and without a needless wait;
# - write the loop of an engine process and the book of open requests of an API process;
# - say what a process boundary costs in bytes and microseconds, and when it pays;
# - answer three of the ten questions with numbers of your own machine:
#   **1. Is process separation always best?**
#   **2. Does splitting CPU and GPU work always raise GPU utilization?**
#   **8. Is a sequence id enough to track a request?**

# %% [markdown] lang="ko" of="49381da0"
# # 07 · 요청과 프로세스
#
# 2024년 11월, vLLM 이슈 10087. 서버에 미들웨어 함수를 하나라도 추가하면, 클라이언트가 연결을 끊어도
# 엔진이 그 답을 계속 계산했습니다. 서버는 웹 프레임워크에 “클라이언트가 떠났는가?”라고 물었고, 그런
# 미들웨어 뒤에서 프레임워크는 언제까지나 “아니요”라고 답했습니다. 아무것도 죽지 않았습니다. GPU가
# 이미 떠난 사람들을 위해 바빴을 뿐입니다.
#
# 스케줄러(노트북 06)는 서버의 절반입니다. 나머지 절반은 요청마다, 매 순간, 누가 기다리고 있고 지금
# 어디에 있으며 어떻게 끝나는지를 아는 것입니다.
#
# **이 노트북을 마치면**
#
# - 요청을 소켓에서 블록까지 따라가고, 어떤 상태에서든 깨끗이 끝낼 수 있습니다.
# - 정지 문자열(stop string)을 흘리지도, 쓸데없이 기다리지도 않고 붙들 수 있습니다.
# - 엔진 프로세스의 루프와, API 프로세스가 열린 요청을 적어 두는 장부를 작성할 수 있습니다.
# - 프로세스 경계의 비용을 바이트와 마이크로초로 말하고, 언제 이득인지 말할 수 있습니다.
# - 열 가지 질문 중 세 개에 직접 잰 숫자로 답할 수 있습니다.
#   **1. 프로세스 분리가 항상 최선인가?**
#   **2. CPU와 GPU 작업을 나누면 항상 GPU 사용률이 오르는가?**
#   **8. 시퀀스 id만으로 요청을 추적할 수 있는가?**

# %% header minutes=12

# %% [markdown] lang="en"
# ## If you start here: three minutes
#
# Earlier notebooks built an engine: requests in, token events out.
#
# - **Tokens to text** (01): a detokenizer that never sends half a character.
# - **Blocks** (04): the KV cache is cut into blocks of 16 tokens; a request holds a `block_table`,
#   a list of block numbers. A block may have several holders: a shared prefix, or the copies of a
#   prompt that is to be answered n times.
# - **The scheduler** (06): each step, `plan` decides how many tokens of which requests are
#   computed, the model computes, `commit` writes down what came. A request waits in the policy's
#   line, or runs and holds a slot and blocks, or was preempted and waits again.
# - **What is measured** (01): TTFT, from arrival to the first token; ITL, between two tokens.
#
# Around that engine goes a server of two processes. One speaks HTTP and text, the other tokens;
# all that passes between them are small messages.

# %% [markdown] lang="ko" of="3fe298e4"
# ## 여기서 시작한다면: 3분 요약
#
# 앞의 노트북에서 엔진을 만들었습니다. 요청이 들어가고 토큰 이벤트가 나옵니다.
#
# - **토큰에서 텍스트로** (01): 글자를 반쪽으로 보내지 않는 디토크나이저.
# - **블록** (04): KV 캐시를 16토큰짜리 블록으로 나눕니다. 요청은 블록 번호의 목록인
#   `block_table`을 갖습니다. 블록 하나를 여럿이 가질 수 있습니다. 공유된 접두사이거나, n번 답할
#   프롬프트의 사본들입니다.
# - **스케줄러** (06): 단계마다 `plan`이 어느 요청의 토큰 몇 개를 계산할지 정하고, 모델이 계산하고,
#   `commit`이 결과를 적습니다. 요청은 정책의 줄에서 기다리거나, 자리(slot)와 블록을 갖고 실행되거나,
#   선점(preemption)되어 다시 기다립니다.
# - **재는 것** (01): TTFT는 도착에서 첫 토큰까지, ITL은 토큰 둘 사이의 시간입니다.
#
# 이 엔진 둘레에 프로세스 두 개로 된 서버를 세웁니다. 하나는 HTTP와 텍스트를, 다른 하나는 토큰을
# 다루고, 둘 사이를 오가는 것은 작은 메시지뿐입니다.

# %% tags=["nbval-ignore-output"]
from labkit.model import best_device
from labkit.workbook.figures.processes import life_figure, map_figure

device = best_device()
map_figure()

# %% tags=["nbval-ignore-output"]
life_figure()

# %% [markdown] lang="en"
# Each fact about a request has one home. Most bugs of this notebook are a fact looked up in the
# wrong one.
#
# | the fact | where it lives | its key |
# | --- | --- | --- |
# | is the client still there, does it read? | the socket, in the API process | the connection |
# | what was asked; is all of it over? | a *ticket* | the server's id, `cmpl-…` |
# | the text so far, held-back text, TTFT | a *choice*: one of the n answers | `cmpl-…/1` |
# | state, tokens, priority, deadline | a `Request` in the engine process | the same id |
# | keys and values | blocks, counted by holder | block numbers |
# | the name that the client gave it | a note on the ticket | none: it needn't be unique |

# %% [markdown] lang="ko" of="fa87df52"
# 요청에 관한 사실마다 사는 곳이 하나씩 있습니다. 이 노트북의 버그 대부분은 사실을 엉뚱한 곳에서
# 찾은 것입니다.
#
# | 사실 | 사는 곳 | 키 |
# | --- | --- | --- |
# | 클라이언트가 아직 있는가, 읽고 있는가? | API 프로세스의 소켓 | 연결 |
# | 무엇을 요청했는가, 모두 끝났는가? | *ticket* | 서버가 만든 id, `cmpl-…` |
# | 지금까지의 텍스트, 붙든 텍스트, TTFT | *choice*: n개의 답 중 하나 | `cmpl-…/1` |
# | 상태, 토큰, 우선순위, 마감 | 엔진 프로세스의 `Request` | 같은 id |
# | 키와 값 | 가진 이를 세는 블록 | 블록 번호 |
# | 클라이언트가 붙인 이름 | ticket 위의 메모 | 없음: 유일하지 않아도 됨 |

# %% [markdown] lang="en"
# ## An end that the text decides: stop strings
#
# A request ends on tokens: an end token, the length, an abort. A *stop string* is different: it is
# text, its characters come in tokens of any cut, and the engine knows no text. So the API process
# looks for it, and sends the engine an abort when it is met.
#
# The trouble is that sent text can't be taken back. Half of a stop string must wait until the other
# half comes, or something else.

# %% [markdown] lang="ko" of="d1d15a15"
# ## 텍스트가 정하는 끝: 정지 문자열
#
# 요청은 토큰으로 끝납니다. 종료 토큰, 길이, 취소(abort). *정지 문자열*은 다릅니다. 텍스트이고, 글자들이
# 어떻게 잘린 토큰으로 올지 모르며, 엔진은 텍스트를 모릅니다. 그래서 API 프로세스가 찾고, 만나면
# 엔진에 취소를 보냅니다.
#
# 문제는 보낸 텍스트를 되돌릴 수 없다는 것입니다. 정지 문자열의 절반은 나머지 절반이나 다른 것이 올
# 때까지 기다려야 합니다.

# %% show="labkit.model.stop_strings:StopStrings"

# %% exercise="07.1"

# %% [markdown] lang="en"
# The tokens of one answer, and what the client may see after each. The stop string is `DEFGHIJ`;
# the second answer only begins like it.

# %% [markdown] lang="ko" of="5ccb6984"
# 한 답의 토큰들과, 토큰마다 클라이언트가 볼 수 있는 것입니다. 정지 문자열은 `DEFGHIJ`이고, 두 번째
# 답은 시작만 비슷합니다.

# %% tags=["nbval-ignore-output"]
StopStrings = use("07.1")

# %%
for tokens in (["abc", "D", "EF", "G", "HI", "J", "k"], ["abc", "D", "EF", "G", "과", " 끝 DE"]):
    strings = StopStrings(("DEFGHIJ",))
    sent = [strings.push(token)[0] for token in tokens]
    print(tokens, "→", sent, "at the end", repr(strings.flush()), "met", strings.met)

# %% [markdown] lang="en"
# ## An end from outside: abort in every state
#
# A client leaves, a deadline passes, a stop string is met: all of these end a request that the
# scheduler holds *somewhere*. There are five places to look: the table of known requests, the
# running ones (a slot), the policy's line, the list of copies that wait for a parent's prompt, and
# the blocks, on the device and on the host. Forget one, and the server has a leak that no
# test of the happy path shows.

# %% [markdown] lang="ko" of="e70fd0e9"
# ## 밖에서 온 끝: 모든 상태에서의 취소
#
# 클라이언트가 떠나고, 마감이 지나고, 정지 문자열을 만납니다. 모두 스케줄러가 *어딘가에* 갖고 있는
# 요청을 끝냅니다. 살펴볼 곳은 다섯입니다. 아는 요청의 표, 실행 중인 요청(자리), 정책의 줄, 부모의
# 프롬프트를 기다리는 사본의 리스트, 그리고 장치와 호스트의 블록. 하나라도 빠뜨리면, 잘되는 경우만 보는
# 테스트에는 보이지 않는 누수가 생깁니다.

# %% show="labkit.engine.scheduler:Scheduler"

# %% exercise="07.2"

# %% [markdown] lang="en"
# One slot. A runs, B and C wait. Both A's and B's client leave; then one more step.

# %% [markdown] lang="ko" of="18032730"
# 자리는 하나입니다. A가 실행되고 B와 C가 기다립니다. A와 B의 클라이언트가 모두 떠난 뒤 한 단계를 더
# 합니다.

# %% tags=["nbval-ignore-output"]
Scheduler = use("07.2")

# %%
from labkit.engine.blocks import BlockPool
from labkit.engine.request import Request
from labkit.measure.experiments.processes_virtual import VirtualEngine

pool = BlockPool(num_blocks=16, block_size=4)
engine = VirtualEngine(Scheduler(pool, max_num_seqs=1))
for name in "ABC":
    engine.scheduler.add(Request(name, [ord(name)] * 6, max_tokens=8))
engine.step()
print("A runs:", list(engine.scheduler.running), "blocks in use:", pool.num_used)
print("aborted:", [engine.abort(name) for name in ("A", "B", "B")], "in use:", pool.num_used)
engine.step()
print("next:", list(engine.scheduler.running), "blocks in use:", pool.num_used)

# %% [markdown] lang="en"
# ## Experiment A: what a sequence id doesn't tell
#
# The study group's short answer to **question 8, is a sequence id enough to track a request?** is:
# *no. It takes the request id, the client's connection, the KV allocation, deadline, priority,
# cancellation: the whole life of a request.*
#
# Let us count what is lost otherwise. A front end keeps one table, from sequence id to the client
# that reads. When a client leaves, it deletes the entry; that is all it knows. The engine behind it
# is a real scheduler with one slot, on a virtual clock: a step takes a second. The client who
# leaves had asked for 20 tokens. It leaves while its request waits, while it runs (three tokens
# read), or while it is preempted.
#
# **Predict.** It leaves after three tokens of 20: how many are computed for nobody?

# %% [markdown] lang="ko" of="f4edf54f"
# ## 실험 A: 시퀀스 id가 말해 주지 않는 것
#
# **질문 8** “시퀀스 id만으로 요청을 추적할 수 있는가?”에 대한 스터디 그룹의 짧은 답은 *아니다. 요청 id,
# 클라이언트 연결, KV 할당, 마감, 우선순위, 취소까지, 요청의 일생 전체가 필요하다* 입니다.
#
# 그러지 않으면 무엇을 잃는지 세어 봅시다. 프런트엔드는 시퀀스 id에서 읽는 클라이언트로 가는 표
# 하나만 갖고 있습니다. 클라이언트가 떠나면 항목을 지웁니다. 아는 것은 그뿐입니다. 뒤의 엔진은 자리가
# 하나인 진짜 스케줄러이고 시계는 가상입니다. 한 단계가 1초입니다. 떠나는 클라이언트는 20토큰을
# 요청했습니다. 요청이 기다리는 동안, 실행되는 동안(토큰 셋을 읽음), 또는 선점된 동안 떠납니다.
#
# **예측.** 20개 중 토큰 셋을 읽고 떠나면, 아무도 읽지 않을 토큰이 몇 개나 계산될까요?

# %% tags=["nbval-ignore-output"]
predict("07.tokens_for_nobody", low=0, high=40, unit="tokens")

# %% [markdown] lang="en"
# **Run.** Once the front end only forgets the client, once it tells the engine. `waits` is how many
# steps the next client waits for its first token.

# %% [markdown] lang="ko" of="30ba700c"
# **실행.** 한 번은 프런트엔드가 클라이언트를 잊기만 하고, 한 번은 엔진에 알립니다. `waits`는 다음
# 클라이언트가 첫 토큰을 받기까지 기다린 단계 수입니다.

# %% tags=["nbval-ignore-output"]
EngineLoop = use("07.4")

# %%
from labkit.measure.experiments.processes_lost import STATES, lose

losses = {}
print("left while    the engine is   blocks held   tokens for nobody   waits")
for state in STATES:
    for tells in (False, True):
        loss = losses[state, tells] = lose(Scheduler, EngineLoop, state, tells)
        print(
            f"{state:13} {'told' if tells else 'not told':15} {loss.blocks_held:11} "
            f"{loss.tokens_for_nobody:19} {loss.next_waits:7}"
        )

# %% tags=["nbval-ignore-output"]
compare("07.tokens_for_nobody", losses["running", False].tokens_for_nobody, "tokens")

# %% [markdown] lang="en"
# Leaving early is not cheaper: a client that leaves *before* its request has begun costs most, all
# 20 tokens, for a person who never saw one. And everybody behind it waits for the ghost.

# %% [markdown] lang="ko" of="6d555f23"
# 일찍 떠났다고 싸지 않습니다. 요청이 시작되기 *전에* 떠난 클라이언트가 가장 비쌉니다. 한 토큰도 보지
# 못한 사람을 위해 20토큰 전부를 계산하고, 뒤에 선 모두가 그 유령을 기다립니다.

# %% [markdown] lang="en"
# ## The book of open requests
#
# The API process needs the whole life, so it keeps a book: the registry. A *ticket* is what one
# client asked for; each of its n answers is a *choice*, which is one request of the engine. Every
# step of the engine arrives as one message, `Step`, with the tokens of everybody. `on_step` brings
# each token to its choice, and wakes the clients that got something.
#
# At hand: `choice.take(token)`, `.is_open`, `.ticket`; `self.observer.started(choice)`,
# `.preempted(choice)`, `.token(choice, now)`, `.stepped(step)`; `self.close_choice(choice)` and
# `self.wake(ticket)`.

# %% [markdown] lang="ko" of="f8edb113"
# ## 열린 요청의 장부
#
# API 프로세스에는 일생 전체가 필요하므로 장부(registry)를 둡니다. *ticket*은 클라이언트 하나가 요청한
# 것이고, n개의 답 하나하나가 *choice*이며 엔진의 요청 하나입니다. 엔진의 한 단계는 모두의 토큰을 담은
# 메시지 하나, `Step`으로 옵니다. `on_step`은 토큰을 각자의 choice에 가져다주고, 무언가를 받은
# 클라이언트를 깨웁니다.
#
# 쓸 수 있는 것: `choice.take(token)`, `.is_open`, `.ticket`, `self.observer.started(choice)`,
# `.preempted(choice)`, `.token(choice, now)`, `.stepped(step)`, `self.close_choice(choice)`,
# `self.wake(ticket)`.

# %% show="labkit.serving.lifecycle:Registry"

# %% exercise="07.3"

# %% [markdown] lang="en"
# Two clients choose the same label, "job-1", and ask for different things: A's answer is AAAA,
# B's is BBBB. First a front end whose table has the label for a key, then your registry.

# %% [markdown] lang="ko" of="398410b8"
# 두 클라이언트가 같은 이름 "job-1"을 붙이고 서로 다른 것을 요청합니다. A의 답은 AAAA, B의 답은
# BBBB입니다. 먼저 이름을 키로 쓰는 프런트엔드, 그다음 여러분의 registry입니다.

# %% tags=["nbval-ignore-output"]
Registry = use("07.3")

# %%
from labkit.measure.experiments.processes_lost import by_label, by_request

print("by label:  ", by_label(Scheduler, EngineLoop))
print("by request:", by_request(Scheduler, EngineLoop, Registry))

# %% [markdown] lang="en"
# **And over HTTP.** Now the real server: the API in one process, SmolLM2-135M in another, started
# for this cell and ended with it. Two clients with one label stream; the first hangs up in the
# middle. `/v1/requests` lists what is open; the blocks are those that the engine counts.

# %% [markdown] lang="ko" of="75cad201"
# **이번에는 HTTP로.** 진짜 서버입니다. 한 프로세스에 API, 다른 프로세스에 SmolLM2-135M이 있고, 이 셀을
# 위해 시작해서 셀과 함께 끝납니다. 이름이 같은 두 클라이언트가 스트리밍하다가 첫 번째가 중간에 끊습니다.
# `/v1/requests`는 열린 요청의 목록이고, 블록은 엔진이 센 것입니다.

# %% tags=["nbval-ignore-output"]
from labkit.measure.experiments.processes_homes import homes
from labkit.measure.experiments.processes_life import two_clients

real = ["--device", device, "--num-blocks", "64"]
with homes(real, 4, ["process"]) as running:
    life = two_clients(running["process"])
for seen in life.moments:
    print(seen.line())
print("two ids:", len(set(life.ids)), "| the second reads on:", repr(life.texts[1][:40]))
print(f"the first one's request was gone {1e3 * life.freed_s:.0f} ms after it had hung up")

# %% [markdown] lang="en"
# **This sharpens the group's answer.** An id is needed, made by the server and unique; it is a key
# and nothing more. What frees the blocks is the *connection*, watched by somebody who knows the way
# from it to the ticket, to the choices, to the engine's requests, to their blocks.

# %% [markdown] lang="ko" of="670ee8fe"
# **그룹의 답을 더 정확하게 합니다.** 서버가 만든 유일한 id는 필요하지만 키일 뿐입니다. 블록을 돌려주게
# 하는 것은 *연결*입니다. 연결에서 ticket으로, choice로, 엔진의 요청으로, 그 블록으로 가는 길을 아는
# 누군가가 연결을 지켜보아야 합니다.

# %% [markdown] lang="en"
# ## At the engine's door
#
# On the other side of the boundary the engine has a door. Who comes in is decided there, when a
# request *arrives*, and a refusal must say which kind it is. **Busy**: the line is full; HTTP 429,
# come back. **Bad**: this request can never be served; HTTP 400, change it. A client that gets the
# wrong one of the two either gives up in vain or comes back for ever.
#
# `would_wait(n)` is given: how many would wait if n more came, a free slot counted as free. The
# answers are `Refused(request_id, reason, busy=…)` and `Accepted(request_id)`.

# %% [markdown] lang="ko" of="636d687b"
# ## 엔진의 문 앞
#
# 경계의 반대편, 엔진에는 문이 있습니다. 누가 들어올지는 요청이 *도착할 때* 거기서 정하고, 거절할 때는
# 어느 쪽인지 말해야 합니다. **바쁨**: 줄이 찼습니다. HTTP 429, 다시 오세요. **잘못됨**: 이 요청은 영영
# 처리할 수 없습니다. HTTP 400, 고치세요. 둘을 바꿔 들은 클라이언트는 헛되이 포기하거나 끝없이
# 돌아옵니다.
#
# `would_wait(n)`은 주어져 있습니다. n개가 더 오면 몇 개가 기다리게 되는지를, 빈자리를 빈 것으로 쳐서
# 알려 줍니다. 답은 `Refused(request_id, reason, busy=…)`나 `Accepted(request_id)`입니다.

# %% show="labkit.serving.engine_loop:EngineLoop"

# %% exercise="07.4"

# %% [markdown] lang="en"
# One slot, and two may wait. Six requests come; the third has a token that the model doesn't have.
# No step is done here, so that r0, which will have the slot, still counts among those that wait.

# %% [markdown] lang="ko" of="8744e1b2"
# 자리는 하나, 둘까지 기다릴 수 있습니다. 요청 여섯이 오고, 세 번째에는 모델에 없는 토큰이 있습니다. 여기서는
# 단계를 실행하지 않으므로, 자리를 얻을 r0도 아직 기다리는 요청으로 셉니다.

# %%
from labkit.model.sampling_params import SamplingParams
from labkit.serving.messages import Abort, Add

loop = EngineLoop(VirtualEngine(Scheduler(BlockPool(16, 4), max_num_seqs=1)), 2)
for number in range(6):
    prompt = [65, 300] if number == 2 else [65, 66]
    said = loop.add(Add(f"r{number}", prompt, SamplingParams(max_tokens=4), arrival=0.0))
    kind = {True: "429 busy", False: "400 bad "}.get(getattr(said, "busy", None), "accepted")
    print(f"r{number} {kind} {getattr(said, 'reason', '')}")
print("open:", sorted(loop.open))

# %% [markdown] lang="en"
# ## The loop of the engine process
#
# The last piece is ten lines long, and every server has had bugs in it. The engine process takes
# messages and does steps. While there is work it must not wait for messages; while there is none
# it must not spin, for on a CPU it would take a core from the API. And an abort that arrives during
# a step must be obeyed before the next one.

# %% [markdown] lang="ko" of="473a8dc1"
# ## 엔진 프로세스의 루프
#
# 마지막 조각은 열 줄이고, 어느 서버나 여기서 버그를 냈습니다. 엔진 프로세스는 메시지를 받고 단계를
# 합니다. 일이 있는 동안에는 메시지를 기다리면 안 되고, 일이 없으면 헛돌면 안 됩니다. CPU에서는 API의
# 코어를 빼앗기 때문입니다. 그리고 단계 중에 온 취소는 다음 단계 전에 따라야 합니다.

# %% exercise="07.5"

# %% [markdown] lang="en"
# The diary of a loop: request `a` has work for 50 steps, `b` comes during the first step, an abort
# of both during the third. Times are virtual seconds, a step takes one.

# %% [markdown] lang="ko" of="1fdcf85c"
# 루프의 일기입니다. 요청 `a`에는 50단계의 일이 있고, `b`는 첫 단계 중에, 둘의 취소는 셋째 단계 중에
# 옵니다. 시각은 가상의 초이고 한 단계는 1초입니다.

# %% tags=["nbval-ignore-output"]
run = use("07.5")

# %%
from labkit.serving.messages import Stop
from labkit.workbook.fakes_processes import Mailbox

arrivals = [
    (0.0, Add("a", [65], SamplingParams(), 0.0), 50),
    (0.5, Add("b", [65], SamplingParams(), 0.0), 50),
    (2.2, Abort(["a", "b"]), None),
]
box = Mailbox(arrivals, Stop())
run(box, box.receive, box.send)
for when, what in box.diary:
    print(f"{when:4g} s  {what}")

# %% [markdown] lang="en"
# ## Experiment B: what the boundary costs
#
# The study group's short answer to **question 1, is process separation always best?** is: *no. It
# buys isolation, roles for CPU and GPU, independent scaling and control over resources; it costs
# IPC, serialization and context switches. A small service may do better simple; a large one
# separates API and engine.*
#
# First the price of the messages themselves, without HTTP: one `Step` for 64 requests, written as
# msgpack and read again.
#
# **Predict.** How many microseconds does a token take, writing and reading together?

# %% [markdown] lang="ko" of="a8f07bbb"
# ## 실험 B: 경계의 비용
#
# **질문 1** “프로세스 분리가 항상 최선인가?”에 대한 스터디 그룹의 짧은 답은 *아니다. 격리, CPU와 GPU의
# 역할 분담, 독립적인 확장, 자원 통제를 얻고, IPC, 직렬화, 문맥 교환을 치른다. 작은 서비스는 단순한 쪽이
# 낫고, 큰 서비스는 API와 엔진을 나눈다* 입니다.
#
# 먼저 HTTP 없이 메시지 자체의 값입니다. 요청 64개의 `Step` 하나를 msgpack으로 쓰고 다시 읽습니다.
#
# **예측.** 쓰기와 읽기를 합쳐 토큰 하나에 몇 마이크로초가 들까요?

# %% tags=["nbval-ignore-output"]
predict("07.ipc_us", low=0, high=50, unit="us per token")

# %% tags=["nbval-ignore-output"]
from labkit.measure.bench import ipc_messages

ipc_cost = {}
for batch in (1, 64):
    cost = ipc_messages.costs(batch)
    ipc_cost[batch] = 1e6 * (cost["encode_s_per_token"] + cost["decode_s_per_token"])
    print(
        f"{batch:2} tokens a step: {cost['bytes_per_token']:5.0f} bytes a token, write "
        f"{1e6 * cost['encode_s_per_token']:.2f} us, read {1e6 * cost['decode_s_per_token']:.2f} us"
    )
ipc_bytes = cost["bytes_per_token"]
compare("07.ipc_us", ipc_cost[64], "us per token")

# %% [markdown] lang="en"
# **Compare.** Against a step of 5 to 50 milliseconds that is nothing. Here the group's answer is
# corrected: serialization is *not* what separation costs. One message a step, not one a token,
# keeps it so. What remains is the way: a socket, two processes to be woken, and on a CPU the core
# that both want.
#
# ## Experiment C: three homes for one engine
#
# The same server, its engine in three places: in the API's own event loop (while a step lasts,
# nothing is sent), in a thread beside it (one interpreter for both), in a process of its own.
#
# First **this machine with the real model, one stream**. A step takes long, and there is one token
# to send: little to overlap.
#
# **Predict.** The tokens/s with a process, as a multiple of those in the loop?

# %% [markdown] lang="ko" of="8561377b"
# **비교.** 5에서 50밀리초인 한 단계에 비하면 아무것도 아닙니다. 그룹의 답을 여기서 바로잡습니다. 분리의
# 비용은 직렬화가 *아닙니다*.
# 토큰마다가 아니라 단계마다 메시지 하나여서 그렇습니다. 남는 것은 오가는 길입니다. 소켓, 깨워야 하는
# 프로세스 둘, 그리고 CPU에서는 둘이 함께 원하는 코어.
#
# ## 실험 C: 한 엔진의 세 집
#
# 같은 서버에서 엔진이 사는 곳만 셋입니다. API의 이벤트 루프 안(한 단계 동안 아무것도 보내지 못함), 그
# 옆의 스레드(인터프리터 하나를 함께 씀), 자기 프로세스.
#
# 먼저 **이 장비에서 진짜 모델로, 스트림 하나**입니다. 한 단계는 길고 보낼 토큰은 하나뿐이라 겹칠 것이
# 거의 없습니다.
#
# **예측.** 프로세스일 때의 tokens/s는 루프 안일 때의 몇 배일까요?

# %% tags=["nbval-ignore-output"]
predict("07.process_one_stream", low=0.4, high=3, unit="times the tokens/s")

# %% [markdown] lang="en"
# **Run.** The servers with a process and without are up at once and take turns; each keeps the
# better of its rounds. The thread comes after them: three models at once would be 3 GB. With four
# streams, too: we need that row for question 2. `delivery` is the way alone: from the moment when a
# token exists to the moment when the API has it.

# %% [markdown] lang="ko" of="80afeb50"
# **실행.** 프로세스인 서버와 아닌 서버를 함께 띄우고 번갈아 재며, 각자 나은 쪽을 남깁니다. 스레드는 그
# 뒤에 잽니다. 모델 셋을 한꺼번에 올리면 3 GB이기 때문입니다. 질문 2에 쓸 스트림 네 개도 함께 잽니다.
# `delivery`는 오가는 길만 잰 것입니다. 토큰이 생긴 순간부터 API가 그것을 가진 순간까지입니다.

# %% tags=["nbval-ignore-output"]
from labkit.measure.experiments.processes_homes import compare_homes, factor, table

loads = [(1, 32, 2), (4, 16, 1)]  # streams, tokens of each, rounds
one, four = compare_homes(real, loads, label=device)
print("1 stream\n" + table(one) + "\n\n4 streams\n" + table(four))

# %% tags=["nbval-ignore-output"]
from labkit.measure.experiments.processes_homes import delivery_us

way = {row["home"]: delivery_us(row) for row in one}
longer = way["process"] / way["in-process"]
print(f"the way of a token is × {longer:.1f} as long with a process")
compare("07.process_one_stream", factor(one), "times the tokens/s")

# %% [markdown] lang="en"
# Here separation loses. Tokens/s don't rise, and may fall: a process overlaps the sending of one
# token with the next step, and pays with the cores that both share (on 2 cores a tenth may be
# lost). What it always loses is the *way*: each token takes several times as long to the API,
# hundreds of microseconds instead of tens. Add a second process to start, to watch and to hold in
# memory, and you have the small service of the group's answer, which does better simple.
#
# Now **many streams on a card**. A CPU can't show this half: its engine and its API fight for the
# same cores. So the device is *paced*: it waits, using no CPU, as long as an H100 takes for a step
# of a model of 8 billion parameters by its data sheet (modelled); API, scheduler, messages and
# processes are real (measured). Sending 64 tokens costs the API milliseconds of CPU. In the loop
# the card stands still meanwhile.
#
# **Predict.** 64 streams: the tokens/s with a process, as a multiple of those in the loop?

# %% [markdown] lang="ko" of="1618d33f"
# 여기서는 분리가 손해입니다. tokens/s는 늘지 않고 줄기도 합니다. 프로세스는 토큰 하나를 보내는 일을 다음
# 단계와 겹치는 대신 코어를 나눠 쓰는 값을 치릅니다(코어가 둘이면 10분의 1을 잃기도 합니다). 언제나 잃는
# 것은 *길*입니다. 토큰이 API까지 가는 데 몇 배, 즉 수십 대신 수백 마이크로초가 걸립니다. 시작하고 지켜보고
# 메모리에 둘 프로세스가 하나 더 있으니, 그룹의 답에 나오는 단순한 쪽이 나은 작은 서비스가 이 경우입니다.
#
# 이제 **카드 위의 많은 스트림**입니다. 이쪽 절반은 CPU로 보일 수 없습니다. 엔진과 API가 같은 코어를 두고
# 다투기 때문입니다. 그래서 장치는 *paced*입니다. 80억 파라미터 모델의 한 단계에 H100이 데이터시트대로
# 걸릴 시간만큼 CPU를 쓰지 않고 기다립니다(모델링). API, 스케줄러, 메시지, 프로세스는 진짜입니다(측정).
# 토큰 64개를 보내는 데 API는 CPU를 몇 밀리초 씁니다. 루프 안이라면 그동안 카드가 놀고 있습니다.
#
# **예측.** 스트림 64개일 때, 프로세스의 tokens/s는 루프 안의 몇 배일까요?

# %% tags=["nbval-ignore-output"]
predict("07.process_many_streams", low=0.4, high=5, unit="times the tokens/s")

# %% tags=["nbval-ignore-output"]
from labkit.measure.experiments.processes_homes import measure, paced_homes
from labkit.workbook.figures.processes import homes_figure

with paced_homes("H100:8b", slots=64) as running:
    many = measure(running, streams=64, tokens=64, label="H100:8b")
    two = measure(running, streams=2, tokens=48, label="H100:8b", rounds=1)
homes_figure(
    {
        f"{device}, 1 stream\n(measured)": one,
        "H100, 2 streams\n(steps modelled)": two,
        "H100, 64 streams\n(steps modelled)": many,
    }
)

# %% tags=["nbval-ignore-output"]
print("64 streams, steps modelled\n" + table(many))
compare("07.process_many_streams", factor(many), "times the tokens/s", modelled=True)

# %% [markdown] lang="en"
# **This supports the answer, with a rule.** Let a step take s on the device and a on the API's CPU.
# In the loop a step costs about s + a; with a process about max(s, a). Separation brings most where
# s and a are alike, nothing where one is far larger, and costs a little where there is nothing to
# overlap. A thread is often as fast, since waiting for a device releases the interpreter. But a
# thread can't be killed and started again: what the boundary buys beside speed is isolation, and
# experiment E shows it.
#
# ## Experiment D: is the device busy?
#
# The study group's short answer to **question 2, does splitting CPU and GPU work always raise GPU
# utilization?** is: *no. Tokenizer delay, small batches, KV shortage, transfers, the scheduler or
# memory bandwidth may hold it back; look at queue time, TTFT, tokens/s and KV use.*
#
# **The CPU half**, real model, over HTTP: the share of the time in which the engine computes, from
# the rows that you have just measured.

# %% [markdown] lang="ko" of="614da5fd"
# **그룹의 답을 뒷받침하고 규칙을 더합니다.** 한 단계가 장치에서 s, API의 CPU에서 a 걸린다고 합시다.
# 루프 안에서는 약 s + a, 프로세스면 약 max(s, a)입니다. 분리는 s와 a가 비슷할 때 가장 이득이고, 한쪽이
# 훨씬 크면 이득이 없으며, 겹칠 것이 없으면 조금 손해입니다. 장치를 기다리는 동안 인터프리터를
# 놓으므로 스레드도 자주 그만큼 빠릅니다. 그러나 스레드는 죽였다 다시 시작할 수 없습니다. 경계가
# 속도 말고 주는 것은 격리이며, 실험 E에서 봅니다.
#
# ## 실험 D: 장치는 바쁜가?
#
# **질문 2** “CPU와 GPU 작업을 나누면 항상 GPU 사용률이 오르는가?”에 대한 스터디 그룹의 짧은 답은 *아니다.
# 토크나이저 지연, 작은 배치, KV 부족, 전송, 스케줄러, 메모리 대역폭이 발목을 잡을 수 있다. 대기 시간,
# TTFT, tokens/s, KV 사용률을 보라* 입니다.
#
# **CPU 쪽 절반**, 진짜 모델, HTTP로: 방금 잰 행에서 엔진이 계산하고 있던 시간의 비율입니다.

# %% tags=["nbval-ignore-output"]
for name, rows in (("1 stream", one), ("4 streams", four)):
    told = ", ".join(f"{row['home']} {row['busy']:.0%}" for row in rows)
    print(f"{name:10} engine busy on {device}: {told}")
print(f"process against in the loop, 4 streams: × {factor(four):.2f} tokens/s")

# %% [markdown] lang="en"
# Here splitting CPU work gains nothing. On a CPU the engine is busy nearly all the time, wherever it
# lives. The tokens/s differ by a tenth or two, as such short runs do. What is already near 100%
# can't be raised.
# (On a GPU look at your own numbers: its steps are shorter.)
#
# **The GPU half**, six causes, switched on one at a time on the paced card. API and engine are
# processes of their own in *every* row.
#
# **Predict.** With only two requests at a time (small batch), for what share of the time is the
# device busy?

# %% [markdown] lang="ko" of="1a71b11c"
# 여기서는 CPU 일을 나누어도 얻는 것이 없습니다. CPU에서는 엔진이 어디에 살든 거의 항상 바쁩니다. tokens/s는
# 10분의 1이나 2쯤 다른데, 이렇게 짧은 실행에서는 그만큼 흔들립니다. 이미 100%에 가까운 것을 더 올릴 수는
# 없습니다. (GPU라면 단계가 더 짧으니 직접 잰 숫자를 보세요.)
#
# **GPU 쪽 절반**: paced 카드에서 여섯 가지 원인을 하나씩 켭니다. *모든* 행에서 API와 엔진은 각자의
# 프로세스입니다.
#
# **예측.** 한 번에 요청 두 개뿐이라면(작은 배치) 장치는 시간의 몇 %나 바쁠까요?

# %% tags=["nbval-ignore-output"]
predict("07.busy_small_batch", low=0, high=100, unit="% busy")

# %% tags=["nbval-ignore-output"]
from labkit.measure.experiments import processes_bottlenecks as bottlenecks
from labkit.workbook.figures.processes import bottlenecks_figure

causes = bottlenecks.compare_causes()
bottlenecks_figure(causes)

# %% tags=["nbval-ignore-output"]
by_cause = {row["cause"]: row for row in causes}
print(bottlenecks.table(causes))
compare("07.busy_small_batch", 100 * by_cause["small-batch"]["busy"], "% busy", modelled=True)

# %% [markdown] lang="en"
# | cause | what was switched on | what gives it away |
# | --- | --- | --- |
# | tokenizer | prompts are texts of 40,000 characters, nearly all blanks: some 600 tokens, cached | the API's core is full (queue time and TTFT begin before there are tokens) |
# | small-batch | two slots | queue time; tokens per step |
# | kv | a quarter of the blocks needed | KV peak near 100%, queue time, few tokens per step |
# | transfer | the same, swapped over a slow link | as above, and steps are long with copies |
# | scheduler | a policy that compares every two requests | device busy falls, nothing waits in line |
# | bandwidth | contexts of 5,000 tokens | the device's time for a step, while tokens/s fall |
#
# **The group's answer is supported; the question is corrected.** "Utilization" counts a step of two
# tokens as much as one of 64: a small batch keeps the device busy and wastes it. And does splitting
# help *there*? Two streams on the card, in the loop and with a process:

# %% [markdown] lang="ko" of="895a7657"
# | 원인 | 켠 것 | 드러나는 곳 |
# | --- | --- | --- |
# | tokenizer | 40,000자짜리 텍스트 프롬프트, 거의 전부 공백이라 600토큰쯤이고 캐시에 있음 | API의 코어가 꽉 참(대기 시간과 TTFT는 토큰이 생기기 전부터 잽니다) |
# | small-batch | 자리 둘 | 대기 시간, 단계당 토큰 수 |
# | kv | 필요한 블록의 4분의 1만 있음 | KV 최고치가 100% 가까움, 대기 시간, 단계당 토큰이 적음 |
# | transfer | 같은 부족, 느린 링크로 스왑 | 위와 같고, 복사 때문에 단계가 길어짐 |
# | scheduler | 요청을 둘씩 모두 비교하는 정책 | 장치 사용률이 떨어지는데 줄은 비어 있음 |
# | bandwidth | 5,000토큰의 컨텍스트 | 장치에서 한 단계가 길어지고 tokens/s가 줄어듦 |
#
# **그룹의 답은 맞고, 질문을 바로잡습니다.** “사용률”은 토큰 두 개짜리 단계도 64개짜리와 똑같이 셉니다. 작은 배치는
# 장치를 바쁘게 하면서 낭비합니다. 그렇다면 *거기서* 나누기는 도움이 될까요? 카드 위의 스트림 둘을 루프
# 안과 프로세스로 비교합니다.

# %% tags=["nbval-ignore-output"]
print("2 streams, steps modelled\n" + table(two))
print(f"splitting: × {factor(two):.2f} with 2 streams, × {factor(many):.2f} with 64")

# %% [markdown] lang="en"
# With two streams splitting gains a few per cent, with 64 many times that: it can hide no more CPU
# work than a step carries. The remedy for a small batch is a larger one;
# for bandwidth, fewer bytes (notebooks 03 and 04).
#
# ## Experiment E: the engine is killed
#
# What the process boundary buys. Three clients stream from the real model, and the engine process
# gets SIGKILL: out of memory, a driver fault. In the loop or in a thread the whole server would be
# gone. Here the API process lives, and it owes three things: each open stream an error event within
# two seconds (never a stream that just stops), `/health` the truth, and a new engine.
#
# **Predict.** After how many seconds has the last of the three clients its error?

# %% [markdown] lang="ko" of="8b788858"
# 스트림 둘에서는 나누어서 몇 퍼센트, 64개에서는 그 몇 배를 얻습니다.
# 단계에 든 CPU 일보다 더 많이 감출 수는 없습니다. 작은 배치의 약은 큰 배치이고, 대역폭의 약은 더 적은 바이트입니다(노트북 03,
# 04).
#
# ## 실험 E: 엔진이 죽는다
#
# 프로세스 경계로 얻는 것입니다. 클라이언트 셋이 진짜 모델에서 스트리밍하는데 엔진 프로세스가 SIGKILL을
# 받습니다. 메모리 부족이나 드라이버 오류입니다. 루프 안이나 스레드였다면 서버 전체가 사라집니다. 여기서는
# API 프로세스가 살아 있고 세 가지를 해야 합니다. 열린 스트림마다 2초 안에 오류 이벤트(그냥 멈추는
# 스트림은 안 됨), `/health`에는 사실대로, 그리고 새 엔진.
#
# **예측.** 세 클라이언트 중 마지막이 오류를 받기까지 몇 초가 걸릴까요?

# %% tags=["nbval-ignore-output"]
predict("07.error_s", low=0, high=5, unit="seconds")

# %% tags=["nbval-ignore-output"]
from labkit.measure.experiments.processes_life import kill_engine
from labkit.workbook.figures.processes import death_figure

with homes(real, 4, ["process"]) as running:
    death = kill_engine(running["process"])
death_figure(death)

# %% tags=["nbval-ignore-output"]
print(f"error events after {death.errors} s, code {death.code!r}; /health: {death.status!r}")
compare("07.error_s", max(death.errors), "seconds")

# %% [markdown] lang="en"
# ## What breaks
#
# **1. Two answers, one end.** A client asks for n=2. A front end that ends the stream at the first
# `finish_reason` cuts the second answer off. The ticket knows better.

# %% [markdown] lang="ko" of="730b08f1"
# ## 무엇이 깨지는가
#
# **1. 답은 둘, 끝은 하나.** 클라이언트가 n=2를 요청합니다. 첫 `finish_reason`에서 스트림을 끝내는
# 프런트엔드는 두 번째 답을 잘라 버립니다. ticket은 더 잘 압니다.

# %%
from labkit.measure.experiments.processes_lost import Silent
from labkit.serving.messages import Step, Token
from labkit.workbook import fakes_processes as fakes


def step_of(*tokens):
    told = [Token(name, token, reason, 1.0) for name, token, reason in tokens]
    return Step(0.0, 1.0, 1.0, told, [], [], 0, 0, 0)


for ends_at in ("the first finish_reason", "the end of the ticket"):
    registry = Registry(Silent())
    asked = fakes.ticket("A", aborted=[], n=2)
    registry.open(asked)
    read = {0: "", 1: ""}
    for step in (
        step_of(("A", 65, None), ("A/1", 97, None)),
        step_of(("A", 66, "length"), ("A/1", 98, None)),
        step_of(("A/1", 99, "length")),
    ):
        registry.on_step(step)
        pieces = [*asked.pieces]
        asked.pieces.clear()
        for piece in pieces:
            read[piece.index] += piece.text
        if ends_at == "the first finish_reason" and any(p.finish_reason for p in pieces):
            break
        if not asked.is_open:
            break
    print(f"ends at {ends_at:24}", read)

# %% [markdown] lang="en"
# **2. A client that doesn't read.** Its socket is full, its pieces pile up in the API's memory, and
# with enough such clients the server dies for everybody. Waiting for it in the loop would be worse:
# all others would wait, too. So a stream has a bound, and beyond it the client is dropped; the
# others don't notice.

# %% [markdown] lang="ko" of="251b310b"
# **2. 읽지 않는 클라이언트.** 소켓은 꽉 찼고, 조각은 API의 메모리에 쌓이며, 이런 클라이언트가 많아지면
# 서버가 죽어 모두가 끊깁니다. 루프에서 기다려 주면 더 나쁩니다. 모두가 기다리게 됩니다. 그래서 스트림에는
# 한도가 있고, 넘으면 그 클라이언트를 끊습니다. 다른 클라이언트는 알아채지 못합니다.

# %%
for bound in (10**9, 4):
    told = []
    registry = Registry(Silent(), max_unsent_tokens=bound)
    slow, good = fakes.ticket("slow", told), fakes.ticket("good", told)
    slow.is_stuck = True  # its socket takes nothing
    registry.open(slow), registry.open(good)
    received = []  # by the good client, after each step
    for _ in range(8):
        registry.on_step(step_of(("slow", 65, None), ("good", 66, None)))
        received.append(len(good.pieces))
        good.pieces.clear()
    print(f"bound {bound:10}: unsent {len(slow.pieces)}, dropped: {slow.dropped}")
    print(f"{'':17} the good client got {received}; the engine was told to abort {told}")

# %% [markdown] lang="en"
# **3. A cap that is looked at too late.** "At most two may wait" is easy to check where requests are
# taken out of the line, once a step. A burst arrives *between* two steps, and the line has no end.
# Checked at the door it holds.

# %% [markdown] lang="ko" of="2e940238"
# **3. 너무 늦게 보는 한도.** “둘까지만 기다린다”를 줄에서 요청을 꺼내는 곳에서, 단계마다 한 번 확인하기는
# 쉽습니다. 그러나 몰려오는 요청은 두 단계 *사이에* 도착하고 줄은 끝이 없습니다. 문 앞에서 확인하면
# 지켜집니다.

# %%
class CheckedOnceAStep(EngineLoop):
    """Counts those who waited when the last step was done."""

    waited = 0

    def would_wait(self, count):
        return self.waited

    def step(self):
        told = super().step()
        self.waited = len(self.waiting)
        return told


for kind in (CheckedOnceAStep, EngineLoop):
    loop = kind(VirtualEngine(Scheduler(BlockPool(64, 4), max_num_seqs=1)), 2)
    answers = [
        loop.add(Add(f"r{number}", [65], SamplingParams(max_tokens=4), arrival=0.0))
        for number in range(20)
    ]
    got_in = sum(type(answer).__name__ == "Accepted" for answer in answers)
    print(f"{kind.__name__:17} a burst of 20: {got_in} accepted, {len(loop.waiting)} in line")

# %% [markdown] lang="en"
# ## Your answers
#
# **1. Is process separation always best?** No. With one stream on a CPU it brings no tokens/s, and
# each token's way is several times as long; with many streams on a card it lets the device compute
# while the API sends. And it is the only home in which an engine can die alone. The bytes are not
# the price; the way is.
#
# **2. Does splitting CPU and GPU work always raise GPU utilization?** No. Six causes held the
# device or its tokens back with both sides split; and on a CPU that is busy anyway splitting gained
# nothing. Look at tokens per step beside "busy".
#
# **8. Is a sequence id enough to track a request?** No. Without the connection and an abort, one
# client that left cost up to its whole answer (17 or 20 of 20 tokens); with one label for two, one
# read both answers.

# %% [markdown] lang="ko" of="1bfc08d6"
# ## 여러분의 답
#
# **1. 프로세스 분리가 항상 최선인가?** 아닙니다. CPU에서 스트림이 하나면 tokens/s로 얻는 것이 없고 토큰의
# 길만 몇 배 길어집니다. 카드 위의 많은 스트림에서는 API가 보내는 동안 장치가 계산하게 해 줍니다. 그리고
# 엔진만 혼자 죽을 수 있는 유일한 집입니다. 치르는 값은 바이트가 아니라 오가는 길입니다.
#
# **2. CPU와 GPU 작업을 나누면 항상 GPU 사용률이 오르는가?** 아닙니다. 양쪽을 나눈 상태에서 여섯 원인이 장치나
# 토큰의 발목을 잡았고, 어차피 바쁜 CPU에서는 나누어도 얻은 것이 없었습니다. “바쁨” 옆에 단계당 토큰 수를
# 함께 보세요.
#
# **8. 시퀀스 id만으로 요청을 추적할 수 있는가?** 아닙니다. 연결과 취소가 없으면 떠난 클라이언트 하나가
# 답을 거의 또는 전부(20토큰 중 17 또는 20) 헛되이 계산하게 했고, 이름 하나를 둘이 쓰면 한 사람이 두 답을 모두 읽었습니다.

# %% tags=["nbval-ignore-output"]
answer(
    1,
    process_over_in_process_1_stream_cpu=factor(one),
    process_over_in_process_64_streams_paced=factor(many),
    delivery_us_in_process_1_stream=way["in-process"],
    delivery_us_process_1_stream=way["process"],
    itl_ms_in_process_64_streams=1e3 * many[0]["itl_p50_s"],
    itl_ms_process_64_streams=1e3 * many[-1]["itl_p50_s"],
    ipc_bytes_per_token=ipc_bytes,
    ipc_us_per_token=ipc_cost[64],
    error_after_kill_s=max(death.errors),
    ready_after_kill_s=death.ready,
)

# %% tags=["nbval-ignore-output"]
answer(
    2,
    engine_busy_percent_cpu_4_streams=100 * four[-1]["busy"],
    splitting_gains_2_streams_paced=factor(two),
    splitting_gains_64_streams_paced=factor(many),
    **{f"tokens_per_s_{cause}": row["tokens_per_s"] for cause, row in by_cause.items()},
)

# %% tags=["nbval-ignore-output"]
answer(
    8,
    tokens_for_nobody_running=losses["running", False].tokens_for_nobody,
    tokens_for_nobody_waiting=losses["waiting", False].tokens_for_nobody,
    blocks_held_for_nobody=losses["running", False].blocks_held,
    tokens_for_nobody_when_told=losses["running", True].tokens_for_nobody,
    blocks_after_both_left=life.moments[-1].blocks_in_use - life.moments[0].blocks_in_use,
)

# %% [markdown] lang="en"
# ## The ladder
#
# The rung hasn't changed in this notebook, the server around it has. So the engine's speed should be
# what it was in notebook 06, with your `_forget` in it now.

# %% [markdown] lang="ko" of="c1e79d84"
# ## 사다리
#
# 이 노트북에서 바뀐 것은 단(rung)이 아니라 그 둘레의 서버입니다. 그래서 엔진의 속도는 노트북 06과 같아야
# 하고, 이제 여러분의 `_forget`이 그 안에 있습니다.

# %% tags=["nbval-ignore-output"]
from labkit.workbook.ladder import ladder

ladder("continuous")

# %% [markdown] lang="en"
# ## In vLLM and Triton Inference Server
#
# - **The two processes**: vLLM's API server and its `EngineCore` (`vllm/v1/engine/core.py`,
#   `EngineCoreProc`) talk over ZeroMQ in msgpack (`vllm/v1/serial_utils.py`); the API's side is
#   `EngineCoreClient` in `core_client.py`, which has an in-process kind too. Input and output of the
#   sockets run in threads beside the engine's loop; here the loop does it itself.
# - **The book of open requests** is `OutputProcessor` (`vllm/v1/engine/output_processor.py`), with
#   the detokenizer in it. It holds back a fixed number of characters, the longest stop string's less
#   one (`detokenizer.py`); yours holds only what may still become one.
# - **A client that leaves**: after issue 10087 `with_cancellation` (`vllm/entrypoints/utils.py`)
#   waits for the disconnect message instead of asking whether it came.
# - **A dead engine** is `EngineDeadError` there; vLLM ends, and whoever runs it starts it again.
#   Here the API process lives on and starts the engine itself.
# - **Triton Inference Server** (the server, not the kernel language) runs a Python model in a stub
#   process of its own, with tensors in shared memory. Since 23.10 it knows cancelled requests: from
#   gRPC clients and the C API, checked at certain points; a Python model must ask
#   `is_cancelled()` by itself. Its dynamic batcher has a queue policy with a largest size and a
#   timeout, the cap of 07.4.
# - **What they do beyond this**: several API processes before several engines, shared memory for
#   images, tracing across processes.
#
# Your parts in the server, over HTTP: `python3 -m labkit serve --mine --rung continuous`. Next:
# notebook 08, in which not everybody in line is equal.

# %% [markdown] lang="ko" of="451c215c"
# ## vLLM과 Triton Inference Server에서는
#
# - **두 프로세스**: vLLM의 API 서버와 `EngineCore`(`vllm/v1/engine/core.py`, `EngineCoreProc`)는
#   ZeroMQ로 msgpack을 주고받습니다(`vllm/v1/serial_utils.py`). API 쪽은 `core_client.py`의
#   `EngineCoreClient`이고 같은 프로세스에서 도는 종류도 있습니다. 소켓의 입출력은 엔진 루프 옆의
#   스레드가 합니다. 여기서는 루프가 직접 합니다.
# - **열린 요청의 장부**는 디토크나이저까지 품은 `OutputProcessor`
#   (`vllm/v1/engine/output_processor.py`)입니다. 항상 가장 긴 정지 문자열의 길이에서 1을 뺀 글자 수를
#   붙듭니다(`detokenizer.py`). 여러분의 것은 아직 정지 문자열이 될 수 있는 부분만 붙듭니다.
# - **떠나는 클라이언트**: 이슈 10087 이후 `with_cancellation`(`vllm/entrypoints/utils.py`)은 끊겼는지
#   묻는 대신 끊김 메시지를 기다립니다.
# - **죽은 엔진**은 `EngineDeadError`입니다. vLLM은 끝나고, 운영하는 쪽이 다시 시작합니다. 여기서는 API
#   프로세스가 살아서 엔진을 직접 다시 시작합니다.
# - **Triton Inference Server**(커널 언어가 아니라 서버)는 Python 모델을 별도의 stub 프로세스에서 돌리고
#   텐서는 공유 메모리로 주고받습니다. 23.10부터 요청 취소를 압니다. gRPC 클라이언트와 C API에서 오고
#   정해진 지점에서 확인하며, Python 모델은 `is_cancelled()`를 직접 물어야 합니다. dynamic batcher의
#   queue policy에는 최대 크기와 제한 시간이 있어 07.4의 한도에 해당합니다.
# - **여기에 없는 것**: 여러 엔진 앞의 여러 API 프로세스, 이미지를 위한 공유 메모리, 프로세스를 넘나드는
#   추적(tracing).
#
# 여러분의 코드로 도는 서버를 HTTP로 써 보려면 `python3 -m labkit serve --mine --rung continuous`.
# 다음은 줄에 선 모두가 평등하지는 않은 노트북 08입니다.

# %% tags=["nbval-ignore-output"]
progress()
