"""The library: text in, text out, on any rung.

    engine = Engine.load("smollm2-135m", kv_memory="1GB")
    for answer in engine.generate(["Write about tea.", "Count to five."], SamplingParams()):
        print(answer.text)
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count
from random import SystemRandom
from reprlib import repr as short

from labkit import rungs
from labkit.answers import Answer, Completion, Piece
from labkit.engine.request import Request, StepEvent
from labkit.model.loading import LoadedModel
from labkit.model.sampling_params import SamplingParams, child_seed

Prompt = str | Sequence[int]


class Engine:
    """A model, its tokenizer and one rung of the ladder.

    `generate` and `stream` are for whoever wants text. `add`, `step` and `abort` are what they
    are made of: requests in, token events out.
    """

    def __init__(self, loaded: LoadedModel, rung: str = "continuous", **options):
        self.tokenizer, self.rung = loaded.tokenizer, rung
        self.core = rungs.make(rung, loaded, **options)
        self.encode_chat = loaded.encode_chat
        self.vocab_size = loaded.model.config.vocab_size
        self.numbers = count()
        self.answers: dict[str, Answer] = {}  # request id → what `generate` or a stream waits for

    @classmethod
    def load(
        cls,
        model: str = "smollm2-135m",
        *,
        rung: str = "continuous",
        dtype: str = "float32",
        device: str = "cpu",
        attention: str | None = None,
        **options,
    ) -> "Engine":
        """A model by name or path, ready to serve.

        `dtype` is "float32", "bfloat16", "float16" or, on a CPU, "int8". `attention` is one of
        `labkit.kernels.IMPLEMENTATIONS`, the fastest on the device if not told. The cache has
        `num_blocks` blocks of `block_size` tokens, or what fits in `kv_memory` ("1GB", or bytes).
        Further options: `max_model_len`, `max_num_seqs`, `max_num_batched_tokens`,
        `prefix_caching`, `itl_target_ms`, `cuda_graphs`, `seed`, and with rung="preemptive"
        `policy`, `preemption`, `swap_memory`; see `rungs.make`.

        Raises ModelError for a model that can't be had, ValueError for an option that the rung
        doesn't have or that can't be met.
        """
        if attention and rung in rungs.ON_TRANSFORMERS:
            raise ValueError(f"rung {rung!r} runs transformers, and has no attention {attention!r}")
        loaded = rungs.load_for(rung, model, dtype, device, attention=attention)
        return cls(loaded, rung, **options)

    def add(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        arrival: float | None = None,
        cache_salt: str = "",
        priority: int = 0,
        tenant: str = "",
        deadline: float | None = None,
    ) -> list[Request]:
        """Puts a prompt in line: text, or token ids. Returns its requests, one for each answer.

        `arrival` and `deadline` are seconds on `engine.core.clock`; it arrives now if not told.
        On the rungs "continuous" and "preemptive" a request that hasn't ended by its deadline
        ends with that reason. On the last, `priority` (lower runs first) counts under the policy
        "priority", and `tenant`, which every request keeps, under "fair".

        With `n` answers the ids are `id`, `id/1`, `id/2`, …: the others share the blocks of the
        first one's prompt. ValueError, and nothing is in line, when the prompt can't be served.
        """
        params = params or SamplingParams()
        self.refuse_what_the_rung_ignores(params)
        self.refuse_what_the_policy_ignores(priority, deadline)
        token_ids = self.encode(prompt) if isinstance(prompt, str) else prompt
        token_ids = checked_token_ids(token_ids, self.vocab_size)
        first = f"request-{next(self.numbers)}" if request_id is None else request_id
        seed = SystemRandom().getrandbits(63) if params.seed is None else params.seed
        requests = [
            Request(
                first if index == 0 else f"{first}/{index}",
                token_ids,
                arrival=self.core.clock() if arrival is None else arrival,
                sampling=params,
                seed=child_seed(seed, index),
                cache_salt=cache_salt,
                priority=priority,
                tenant=tenant,
                deadline=deadline,
                copy_of=first if index else None,
            )
            for index in range(params.n)
        ]
        added = []
        try:
            for request in requests:
                self.core.add(request)
                added.append(request)
        except ValueError:
            for request in added:
                self.core.abort(request.request_id)
            raise
        return requests

    def encode(self, text: str) -> list[int]:
        """The tokens of a text. ValueError for half a surrogate pair, which JSON can carry."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"character {error.start} of the prompt is half a surrogate pair, "
                f"{text[error.start]!r}; no tokens stand for it, send whole characters"
            ) from None
        return self.tokenizer.encode(text)

    def step(self) -> list[StepEvent]:
        """One step of the rung: an event for each new token."""
        events = self.core.step()
        for event in events:
            if event.request_id in self.answers:
                self.answers[event.request_id].take(event)
        return events

    def abort(self, request_id: str) -> bool:
        """Ends one request; False when it had ended already."""
        aborted, answer = self.core.abort(request_id), self.answers.get(request_id)
        if aborted and answer is not None:
            answer.end("abort")
        return aborted

    def has_unfinished(self) -> bool:
        return self.core.has_unfinished()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[Completion]:
        """Answers to all prompts, in their order; `params` for all, or one for each.

        A prompt is text or a list of token ids. ValueError when one of them can't be served;
        then none is.
        """
        if isinstance(prompts, str) or (prompts and not isinstance(prompts[0], Sequence)):
            prompts = [prompts]
        one_for_all = params is None or isinstance(params, SamplingParams)
        each = [params] * len(prompts) if one_for_all else list(params)
        if len(each) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts and {len(each)} params; give one for each")
        answers: list[Answer] = []
        completions = []
        try:
            for prompt, its_params in zip(prompts, each, strict=True):
                requests = self.add(prompt, its_params)
                mine = self.answers_to(requests)
                answers += mine
                first, outputs = requests[0], [answer.output for answer in mine]
                completions.append(Completion(first.request_id, first.prompt_token_ids, outputs))
            while any(answer.is_open for answer in answers):
                self.step()
        finally:
            self.leave(answers)
        return completions

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Iterator[Piece]:
        """One prompt's answer, piece by piece, as it is made.

        Requests are in line as soon as this is called, and other streams may be read in between.
        Leaving the loop aborts them, and so does dropping a stream that nobody reads.
        """
        pieces = self.pieces(self.answers_to(self.add(prompt, params)))
        next(pieces)  # into its `try`: a generator that was never begun has no `finally`
        return pieces

    def pieces(self, answers: list[Answer]) -> Iterator[Piece]:
        try:
            yield None
            while True:
                while answers[0].pieces:
                    yield answers[0].pieces.popleft()
                if not any(answer.is_open for answer in answers):
                    return
                self.step()
        finally:
            self.leave(answers)

    def answers_to(self, requests: list[Request]) -> list[Answer]:
        """Answers that `step` will fill, with one line of pieces for all of them."""
        pieces = deque()
        answers = [
            Answer(r.request_id, r.sampling, self.tokenizer, pieces, self.core.abort, index)
            for index, r in enumerate(requests)
        ]
        self.answers |= {answer.request_id: answer for answer in answers}
        return answers

    def leave(self, answers: list[Answer]) -> None:
        """Nobody waits for these any more: what is unfinished is aborted."""
        for answer in answers:
            del self.answers[answer.request_id]
            if answer.is_open:
                self.abort(answer.request_id)

    def refuse_what_the_rung_ignores(self, params: SamplingParams) -> None:
        """The first rung knows nothing but the most likely token."""
        known = ("max_tokens", "ignore_eos", "stop", "skip_special_tokens", "seed")
        plain = vars(SamplingParams(temperature=0.0))
        for name, value in vars(params).items():
            if self.rung == "naive" and name not in known and value != plain[name]:
                raise ValueError(
                    f"{name} is {short(value)}, and rung 'naive' is greedy and knows max_tokens, "
                    "ignore_eos and stop only; set temperature=0 and leave the rest out, or take "
                    "another rung"
                )

    def refuse_what_the_policy_ignores(self, priority, deadline) -> None:
        """A request that asks for what this engine doesn't do is told so."""
        if self.rung == "preemptive":
            policy = self.core.scheduler.policy
            if priority != 0 and "priority" not in policy.reads:
                raise ValueError(
                    f"priority is {priority!r}, and policy {type(policy).__name__} doesn't look at "
                    "it; leave it out, or take policy 'priority'"
                )
            return
        if priority != 0:
            raise ValueError(
                f"priority is {priority!r}, and rung {self.rung!r} serves in order of arrival; "
                "leave it out, or take rung 'preemptive'"
            )
        if deadline is not None and self.rung != "continuous":
            raise ValueError(
                f"deadline is {deadline}, and rung {self.rung!r} has none; "
                "leave it out, or take rung 'continuous' or 'preemptive'"
            )


def checked_token_ids(token_ids: Sequence[int], vocab_size: int) -> list[int]:
    """A copy of a prompt. ValueError that names what is no token of the model."""
    if not isinstance(token_ids, Sequence) or isinstance(token_ids, bytes):
        raise ValueError(f"the prompt is {short(token_ids)}; give text, or a list of token ids")
    for place, token_id in enumerate(token_ids):
        if type(token_id) is not int or not 0 <= token_id < vocab_size:
            raise ValueError(
                f"token {place} of the prompt is {short(token_id)}; the model's vocabulary has "
                f"the whole numbers from 0 to {vocab_size - 1}"
            )
    return list(token_ids)
