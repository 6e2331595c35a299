"""A learner's kernels in Triton, the kernel language, in a process of their own.

Triton reads TRITON_INTERPRET when it is imported, and a notebook may have imported it long ago. So
a child runs them: compiled where there is a GPU, else by Triton's own interpreter; and another one
compiles them for GPUs that aren't there. Linux only, as Triton.
"""

import ast
import json
import linecache
import re
import subprocess
import sys
from collections.abc import Sequence
from types import ModuleType

CASES = {  # context and new tokens of each request
    "decode": [(1, 1), (17, 1), (130, 1)],
    "prefill": [(5, 5), (37, 12)],
    "one long sequence, split": [(700, 1)],
}
MOST_SECONDS = 300
NOT_COMPILED = (ast.Break, ast.Continue, ast.Import, ast.ImportFrom, ast.Lambda, ast.Try)


def is_installed() -> bool:
    """Whether there is Triton, the kernel language."""
    from labkit.kernels.gpu.language import IS_TRITON

    return IS_TRITON


def refuse_what_triton_does(module: ModuleType) -> None:
    """Raises for Python in a kernel that runs on the twin and that Triton has no compiler for."""
    text = "".join(linecache.getlines(module.__file__))
    for function in ast.parse(text).body:
        for node in ast.walk(function) if isinstance(function, ast.FunctionDef) else ():
            if isinstance(node, NOT_COMPILED):
                said, _, _ = ast.unparse(node).partition("\n")
                raise NotImplementedError(f"Triton compiles nothing like this in a kernel: {said}")


def errors(module: ModuleType) -> dict:
    """{"how": "compiled" or "interpreted", "errors": {case: largest error against float64}}."""
    import torch

    return _child(module, {"task": "errors"}, interpret=not torch.cuda.is_available())


def needs(module: ModuleType, kernels: Sequence[str], capabilities=(80, 90)) -> list[dict]:
    """What each of these kernels needs on each kind of GPU: `compiled.Needs` as dicts.

    For bfloat16, heads of 64 numbers, groups of 3, blocks of 16: SmolLM2-135M.
    """
    asked = {"task": "needs", "kernels": [*kernels], "capabilities": [*capabilities]}
    return _child(module, asked, interpret=False)


def seconds_on_gpu(module: ModuleType, shape) -> dict[str, float]:
    """Measured, on a GPU only: one layer's decode attention of `shape` (requests, context, heads,
    kv_heads, head_dim) in bfloat16, by a learner's kernels and by gathering."""
    import torch

    from labkit.kernels.gpu.launch import TritonAttention
    from labkit.kernels.reference import GatheredAttention
    from labkit.measure.bench.kernel_cases import paged_case
    from labkit.measure.bench.kernel_speed import milliseconds_of

    requests, context, heads, kv_heads, head_dim = shape
    batch, q, kv, _ = paged_case(
        [(context, 1)] * requests, heads, kv_heads, head_dim, 16, torch.bfloat16, "cuda"
    )
    gathered, mine = GatheredAttention(batch), TritonAttention(batch, kernels=module)
    return {
        "gather, then attend": milliseconds_of(lambda: gathered(q, kv)) / 1e3,
        "a program a kv head": milliseconds_of(lambda: mine(q, kv)) / 1e3,
    }


def _child(module: ModuleType, asked: dict, interpret: bool):
    from labkit.measure.bench.kernel_cases import in_environment

    asked |= {"name": module.__name__, "source": "".join(linecache.getlines(module.__file__))}
    done = subprocess.run(
        [sys.executable, "-m", __name__], input=json.dumps(asked), env=in_environment(interpret),
        capture_output=True, encoding="utf-8", timeout=MOST_SECONDS,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"the kernels failed in Triton: {done.stderr.strip()[-800:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    if "refused" in found:
        raise RuntimeError(f"the kernels failed in Triton: {found['refused'][-1200:]}")
    return found["found"]


def find_errors(module: ModuleType) -> dict:
    import torch

    from labkit.kernels.gpu import interpreted
    from labkit.kernels.gpu.launch import TritonAttention
    from labkit.measure.bench.kernel_cases import oracle, paged_case

    device, found = "cpu" if interpreted.is_on() else "cuda", {}
    for name, lengths in CASES.items():
        batch, q, kv, own = paged_case(lengths, 6, 2, 64, 16, torch.float32, device)
        out = TritonAttention(batch, kernels=module)(q, kv)
        found[name] = (out.cpu().double() - oracle(batch, q, own)).abs().max().item()
    return {"how": "interpreted" if interpreted.is_on() else "compiled", "errors": found}


def find_needs(module: ModuleType, kernels, capabilities) -> list[dict]:
    from labkit.kernels.gpu import compiled

    compiled.paged = module  # what `specification` takes its kernels from
    return [
        {"kernel": kernel, **vars(compiled.needs(compiled.Shape(kernel, "bfloat16", 64), number))}
        for kernel in kernels
        for number in capabilities
    ]


def main() -> int:
    """Reads a task as JSON, and writes what was found as one line of it."""
    from labkit.workbook import cut

    asked = json.load(sys.stdin)
    module = cut.module_from(asked["name"], asked["source"])
    try:
        if asked["task"] == "errors":
            found = find_errors(module)
        else:
            found = find_needs(module, asked["kernels"], asked["capabilities"])
        said = {"found": found}
    except Exception as error:
        said = {"refused": innermost(error)}
    print(json.dumps(said))
    return 0


def innermost(error: BaseException) -> str:
    """Why, in Triton's words, and in which line. It raises an error for each call on the way to the
    place: the first says the reason, and the next one points at the line."""
    where = ""
    while error.__cause__ or error.__context__:
        where, error = str(error), error.__cause__ or error.__context__
    line = re.findall(r"^(.*)\n *\^$", where, re.MULTILINE)
    at = f"\nin the line: {line[-1].strip()}" if line else ""
    return f"{type(error).__name__}: {error}{at}"


if __name__ == "__main__":
    sys.exit(main())
