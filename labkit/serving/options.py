"""What `python3 -m labkit serve` can be told, and what of it is sensible. No torch."""

import argparse
import os
from argparse import ArgumentTypeError, BooleanOptionalAction, Namespace

from labkit.engine.policies import POLICIES
from labkit.engine.policies.preemption import PREEMPTIONS
from labkit.environment import again
from labkit.kernels import IMPLEMENTATIONS
from labkit.model.loading import DTYPES, INT8
from labkit.rungs import ON_TRANSFORMERS, RUNGS, parse_bytes
from labkit.serving.naming import located, name_models, refuse_for_several
from labkit.serving.replica_options import add_replicas, check_replicas

DESCRIPTION = """\
Serves a model with OpenAI's API: chat, completions, streaming. A page with a chat and the live
engine is at /, the API's document at /openapi.json, Prometheus metrics at /metrics.

  python3 -m labkit serve
  python3 -m labkit serve --model Qwen/Qwen3-0.6B --dtype bfloat16 --kv-memory 4GB
  python3 -m labkit serve --rung static              the batches of 4 of notebook 02
  python3 -m labkit serve --rung naive --mine        with your own parts of the workbook in it
  python3 -m labkit serve --device paced:H100        a card that isn't there: its times, no text
  python3 -m labkit serve --model smollm2-135m --model small=Qwen/Qwen3-0.6B --model-memory 6GB
                                                     loaded when asked for, unloaded for another
  python3 -m labkit serve --replicas 1 --max-replicas 2      on Ray Serve, by load

  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"messages": [{"role": "user", "content": "Hello!"}], "stream": true}'

The engine runs in a process of its own; when it dies, open requests get an error, and it is
started again. Ctrl-C or SIGTERM: what is open is finished first, a second Ctrl-C ends at once."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line, and ends with status 2."""

    def error(self, message: str):
        self.exit(2, f"FAIL {self.prog}: {message} (more: {self.prog} --help)\n")


def key_of(options: Namespace) -> str | None:
    """--api-key, else LABKIT_API_KEY. Blanks around it don't come through a header."""
    return (options.api_key or os.environ.get("LABKIT_API_KEY", "")).strip() or None


def parse(argv: list[str]) -> Namespace:
    """The options. Prints a help or one line about what is wrong, and exits, when it must."""
    parser = Parser(
        prog=again("serve"), description=DESCRIPTION, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_model(parser.add_argument_group("the model"))
    add_engine(parser.add_argument_group("the engine"))
    add_server(parser.add_argument_group("the server"))
    add_limits(parser.add_argument_group("limits"))
    add_replicas(parser.add_argument_group("several replicas, on Ray Serve"), count, above_zero)
    options = parser.parse_args(argv)
    name_models(parser, options)
    check_replicas(parser, options)
    if options.device.startswith("paced:"):
        options.device = "paced:" + located(options.device.removeprefix("paced:"))
    if options.api_key is not None and not options.api_key.strip():  # of a variable not set, say
        parser.error("--api-key is empty, and would let everybody in; give a key, or leave it out")
    options.api_key = key_of(options)
    if options.policy and options.rung not in (None, "preemptive"):
        parser.error(f"--policy {options.policy} is of rung preemptive, not of {options.rung}")
    options.rung = options.rung or "preemptive"
    if options.attention and (options.rung in ON_TRANSFORMERS or options.device[:6] == "paced:"):
        here = f"rung {options.rung} on {options.device}"
        parser.error(f"--attention is of labkit's decoder, which {here} doesn't use")
    refuse_for_several(parser, options)
    options.dtype = options.dtype or ("float32" if options.device == "cpu" else "bfloat16")
    if options.device.startswith("paced:") and options.rung not in ("continuous", "preemptive"):
        parser.error(f"--device {options.device} has rungs continuous and preemptive only")
    return options


def add_model(group) -> None:
    group.add_argument(
        "--model", action="append", metavar="MODEL",
        help="smollm2-135m (default), tiny, a folder or a hub name; several times for several "
        "models, each by a name of its own if you like: NAME=MODEL",
    )  # fmt: skip
    group.add_argument(
        "--model-memory", type=memory, metavar="SIZE",
        help="of all models together, '6GB', caches too; the least recently used leave "
        "(default: 80%% of what is free when it starts)",
    )  # fmt: skip
    group.add_argument(
        "--model-wait", type=above_zero, metavar="S",
        help="a request waits so long for memory that other models use, then 503 (default: 30)",
    )  # fmt: skip
    group.add_argument(
        "--served-model-name", metavar="NAME", help="what clients call it (default: as --model)"
    )
    group.add_argument(
        "--dtype", choices=(*DTYPES, INT8), metavar="DTYPE",
        help=f"{', '.join((*DTYPES, INT8))} (default: float32 on a CPU, else bfloat16)",
    )  # fmt: skip
    group.add_argument(
        "--device", default="cpu", metavar="DEVICE",
        help="cpu (default), cuda, or paced:CARD, which waits as long as that card would take: "
        "A100, L4, L40S, H100, H200, B200, or a cost file of simulate",
    )  # fmt: skip
    group.add_argument(
        "--attention", choices=IMPLEMENTATIONS,
        help="default: the fastest, cpu on a CPU, triton (kernels in that language) on a GPU; "
        "gathered and torch are in torch, torch as in a textbook",
    )  # fmt: skip
    group.add_argument("--max-model-len", type=count, metavar="N", help="tokens in and out")
    group.add_argument(
        "--mine", action="store_true", help="run your own passed parts of the workbook"
    )


def add_engine(group) -> None:
    group.add_argument(
        "--rung", choices=RUNGS, metavar="RUNG",
        help=f"{', '.join(RUNGS)} (default: preemptive, which has all)",
    )  # fmt: skip
    group.add_argument(
        "--policy", choices=sorted(POLICIES), metavar="POLICY",
        help=f"who goes first: {', '.join(sorted(POLICIES))} (default: priority)",
    )  # fmt: skip
    group.add_argument(
        "--preemption", choices=sorted(PREEMPTIONS), metavar="HOW",
        help=f"{', '.join(sorted(PREEMPTIONS))} (default: auto, the cheaper)",
    )  # fmt: skip
    group.add_argument("--swap-memory", metavar="SIZE", help="on the host, '256MB'")
    group.add_argument("--kv-memory", metavar="SIZE", help="of the cache, '1GB' (default)")
    group.add_argument("--num-blocks", type=count, metavar="N", help="instead of --kv-memory")
    group.add_argument("--block-size", type=count, metavar="N", help="tokens a block (16)")
    group.add_argument(
        "--max-num-seqs", type=count, metavar="N", help="that run at once (64; paced 256)"
    )
    group.add_argument(
        "--max-num-batched-tokens", type=count, metavar="N",
        help="tokens of a step (512; paced 2048)",
    )  # fmt: skip
    group.add_argument(
        "--itl-target-ms", type=above_zero, metavar="MS", help="keeps steps this short"
    )
    group.add_argument("--prefix-caching", action=BooleanOptionalAction, help="default: on")
    group.add_argument("--cuda-graphs", action="store_true", help="on a GPU")
    group.add_argument("--seed", type=int, default=0, metavar="N", help="where seeds start (0)")
    home = group.add_mutually_exclusive_group()
    home.add_argument(
        "--in-process", dest="home", action="store_const", const="in-process", default="process",
        help="the engine in the API's own loop, to compare: no supervision, no isolation",
    )  # fmt: skip
    home.add_argument(
        "--in-thread", dest="home", action="store_const", const="thread", help="or in a thread"
    )


def add_server(group) -> None:
    group.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1, this machine only")
    group.add_argument("--port", type=port, default=8000, metavar="N", help="default: 8000")
    group.add_argument(
        "--api-key", metavar="KEY",
        help="clients send it, for /metrics too (or LABKIT_API_KEY; default: none)",
    )  # fmt: skip
    group.add_argument(
        "--log-format", choices=("text", "json"), help="default: text at a terminal, else json"
    )
    group.add_argument(
        "--log-prompts", action="store_true", help="write prompts and answers to the log"
    )


def add_limits(group) -> None:
    group.add_argument(
        "--max-queued-requests", type=whole, default=1024, metavar="N",
        help="that wait; beyond it 429 (default: 1024)",
    )  # fmt: skip
    group.add_argument(
        "--max-unsent-tokens", type=count, default=512, metavar="N",
        help="of a stream whose client doesn't read; beyond it it is dropped (default: 512)",
    )  # fmt: skip
    group.add_argument(
        "--write-timeout", type=above_zero, default=30.0, metavar="S",
        help="a client that takes nothing for so long is dropped (default: 30)",
    )  # fmt: skip
    group.add_argument(
        "--step-timeout", type=above_zero, default=30.0, metavar="S",
        help="an engine that finishes no step for so long is restarted (default: 30)",
    )  # fmt: skip
    group.add_argument(
        "--drain-timeout", type=above_zero, default=30.0, metavar="S",
        help="after SIGTERM open requests have so long to finish (default: 30)",
    )  # fmt: skip


def whole(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise ArgumentTypeError(f"{text!r} is no whole number from 0 to 999,999,999; choose one")
    return int(text)


def count(text: str) -> int:
    if whole(text) == 0:
        raise ArgumentTypeError("0 is too few; at least 1 is needed")
    return int(text)


def memory(text: str) -> int:
    try:
        value = parse_bytes(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
    if value < 10**6:
        raise ArgumentTypeError(f"{text!r} is {value:,} bytes, which hold no model; '6GB', say")
    return value


def port(text: str) -> int:
    if whole(text) > 65535:
        raise ArgumentTypeError(f"{text} is no port; 1 to 65535, or 0 for a free one")
    return int(text)


def above_zero(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise ArgumentTypeError(f"{text!r} is no number above 0 and below 1,000,000; choose one")
    return value


ENGINE_OPTIONS = (
    "policy", "preemption", "swap_memory", "kv_memory", "num_blocks", "block_size",
    "max_model_len", "max_num_seqs", "max_num_batched_tokens", "itl_target_ms", "prefix_caching",
)  # fmt: skip


def engine_config(options: Namespace):
    """What of the options the engine is told, as an `EngineConfig`."""
    from labkit.serving.messages import EngineConfig  # parsing needs the standard library only

    given = {name: getattr(options, name) for name in ENGINE_OPTIONS}
    chosen = {name: value for name, value in given.items() if value is not None}
    if options.cuda_graphs:
        chosen["cuda_graphs"] = True
    return EngineConfig(
        options.model, options.rung, options.dtype, options.device,
        {**chosen, "seed": options.seed}, options.max_queued_requests,
        options.mine and options.home == "process",  # elsewhere this process has done it already
        options.attention,
    )  # fmt: skip
