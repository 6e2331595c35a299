"""Triton's language in NumPy: as much of `triton.language` as the kernels of this folder use.

A program is a Python call, and a tensor of pointers an array with offsets into it. Programs run
one after the other, and each access is written down: which program read and wrote which numbers.
So a kernel runs where Triton isn't installed, and what it does can be counted and drawn (after
GPU-Puzzles, Rush). Names and meanings are Triton's.
"""

import builtins
import itertools
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np

float16, float32, int32, int64 = np.float16, np.float32, np.int32, np.int64


class constexpr:  # noqa: N801, Triton's name
    """A number that is known when a kernel is compiled; here it is just that number."""

    def __new__(cls, value):
        return value


class Tensor(np.ndarray):
    """An array with methods of Triton's tensors, which refuses what NumPy can and Triton can't."""

    def to(self, dtype) -> "Tensor":
        return tensor(np.asarray(self).astype(dtype))

    def trans(self) -> "Tensor":
        return tensor(np.asarray(self).T)

    def max(self, axis=None, keep_dims=False) -> "Tensor":
        return tensor(np.asarray(self).max(axis, keepdims=keep_dims))

    def min(self, axis=None, keep_dims=False) -> "Tensor":
        return tensor(np.asarray(self).min(axis, keepdims=keep_dims))

    def sum(self, axis=None, keep_dims=False) -> "Tensor":
        return tensor(np.asarray(self).sum(axis, keepdims=keep_dims))

    def astype(self, *_):
        raise AttributeError("a tensor of Triton has no astype; it has .to(dtype)")

    def __matmul__(self, other):
        raise TypeError("a tensor of Triton has no operator @; there is tl.dot")

    __rmatmul__ = __imatmul__ = __matmul__

    def __getitem__(self, index):
        for one in index if isinstance(index, tuple) else (index,):
            if one is not None and one != slice(None):
                raise ValueError(f"unsupported tensor index: {one}; Triton takes : and None")
        return super().__getitem__(index)

    def __repr__(self) -> str:
        return str(np.asarray(self))

    __str__ = __repr__


def tensor(values) -> Tensor:
    return np.asarray(values).view(Tensor)


@dataclass(frozen=True)
class Access:
    """One `load` or `store` of one program."""

    program: tuple[int, ...]
    kind: str  # "read" or "write"
    name: str  # of the array
    offsets: np.ndarray  # flat, of the numbers that the mask let through


@dataclass
class Trace:
    """What a launch did. `bytes_moved` counts each access, `bytes_needed` each number once."""

    accesses: list[Access] = field(default_factory=list)
    itemsizes: dict[str, int] = field(default_factory=dict)

    def of(self, name: str, kind: str = "read") -> list[Access]:
        return [a for a in self.accesses if a.name == name and a.kind == kind]

    def bytes_moved(self, name: str, kind: str = "read") -> int:
        sizes = [access.offsets.size for access in self.of(name, kind)]
        return self.itemsizes.get(name, 0) * int(np.sum(sizes))

    def bytes_needed(self, name: str, kind: str = "read") -> int:
        seen = [a.offsets for a in self.of(name, kind)]
        distinct = np.unique(np.concatenate(seen)).size if seen else 0
        return self.itemsizes.get(name, 0) * distinct


class Pointer:
    """Points at numbers of an array: `array` is flat, `offsets` a number or a tensor of them."""

    def __init__(self, name: str, array: np.ndarray, offsets=0):
        self.name, self.array, self.offsets = name, array, offsets

    def __add__(self, offsets) -> "Pointer":
        return Pointer(self.name, self.array, self.offsets + offsets)

    __radd__ = __add__


class OutOfBounds(IndexError):
    """A program touched what is not there. On a GPU it reads a stranger's memory, or ends."""


class Running:
    """The program that runs just now, and the trace that it writes."""

    program: tuple[int, ...] = (0, 0, 0)
    trace = Trace()


def note(pointer: Pointer, kind: str, mask) -> np.ndarray:
    """Writes an access down; returns the offsets, 0 where the mask rules them out."""
    mask = np.asarray(True if mask is None else mask)
    if mask.dtype != bool:
        raise ValueError("Mask must have boolean scalar type")  # Triton's words
    offsets, wanted = np.broadcast_arrays(pointer.offsets, mask)
    touched = offsets[wanted]
    if touched.size and not 0 <= touched.min() <= touched.max() < pointer.array.size:
        raise OutOfBounds(
            f"program {Running.program} {kind}s {pointer.name} at {touched.min()} to "
            f"{touched.max()}; it has {pointer.array.size} numbers, from 0 on"
        )
    Running.trace.accesses.append(Access(Running.program, kind, pointer.name, touched.ravel()))
    return np.where(wanted, offsets, 0)


def load(pointer: Pointer, mask=None, other=None) -> Tensor:
    values = pointer.array[note(pointer, "read", mask)]
    if mask is None:
        return tensor(values)
    blank = np.asarray(0 if other is None else other, dtype=values.dtype)
    return tensor(np.where(np.asarray(mask), values, blank))


def store(pointer: Pointer, values, mask=None) -> None:
    offsets = note(pointer, "write", mask)
    offsets, values, wanted = np.broadcast_arrays(offsets, values, True if mask is None else mask)
    pointer.array[offsets[wanted]] = np.asarray(values)[wanted]


def program_id(axis: int) -> Tensor:
    return tensor(np.int32(Running.program[axis]))


def arange(start: int, end: int) -> Tensor:
    if (end - start) & (end - start - 1):
        raise ValueError(f"arange's range is {end - start}; Triton takes powers of two only")
    return tensor(np.arange(start, end, dtype=np.int32))


def zeros(shape, dtype) -> Tensor:
    return tensor(np.zeros(shape, dtype))


def full(shape, value, dtype) -> Tensor:
    return tensor(np.full(shape, value, dtype))


def dot(left, right, acc=None, input_precision="", allow_tf32=None, out_dtype=float32) -> Tensor:
    """Added up in float32, as Triton does."""
    product = np.asarray(left, np.float32) @ np.asarray(right, np.float32)
    return tensor(product.astype(out_dtype) if acc is None else np.asarray(acc) + product)


def expand_dims(values, axis) -> Tensor:
    return tensor(np.expand_dims(np.asarray(values), axis))


def where(condition, one, other) -> Tensor:
    return tensor(np.where(condition, one, other))


# These are functions as well.
cast, trans, max, min, sum = Tensor.to, Tensor.trans, Tensor.max, Tensor.min, Tensor.sum


def maximum(one, other) -> Tensor:
    return tensor(np.maximum(one, other))


def minimum(one, other) -> Tensor:
    return tensor(np.minimum(one, other))


def _of_each(function):
    return lambda values: tensor(function(np.asarray(values)))


exp, exp2, log, log2, sqrt = map(_of_each, (np.exp, np.exp2, np.log, np.log2, np.sqrt))
math = SimpleNamespace(exp=exp, exp2=exp2, log=log, log2=log2, sqrt=sqrt)


def range(*numbers, **_):  # noqa: A001, Triton's name; its options are for the compiler
    return builtins.range(*map(int, numbers))


static_range = range


def cdiv(number, step):
    return (number + step - 1) // step


NAMES = (
    "arange cast cdiv constexpr dot exp exp2 expand_dims float16 float32 full int32 int64 load log "
    "log2 math max maximum min minimum program_id range sqrt static_range store sum trans where "
    "zeros"
)


def __getattr__(name: str):
    """For a name of Triton's that is not here, or of nobody's."""
    raise AttributeError(f"labkit's twin of Triton has no tl.{name}; it has {NAMES}")


def jit(function):
    """A kernel, or a function that kernels call: `kernel[grid](arguments)` runs its programs."""
    return Kernel(function)


class Kernel:
    """A function that can be called, and launched on a grid of up to three numbers of programs."""

    def __init__(self, function):
        self.fn = function
        self.__name__, self.__doc__ = function.__name__, function.__doc__

    def __call__(self, *arguments, **options):
        return self.fn(*arguments, **options)

    def __getitem__(self, grid):
        grid = grid if isinstance(grid, tuple) else (grid,)
        return lambda *arguments, **options: launch(self.fn, grid, *arguments, **options)


def launch(function, grid: tuple[int, ...], *arguments, names=(), **options) -> Trace:
    """Runs `function` for every program of `grid`, and returns what they did.

    Arrays among `arguments` are passed as pointers; `names` are theirs, by default those of the
    parameters. What `function` stores is in the arrays afterwards. Options of the compiler
    (`num_warps`, `num_stages`) mean nothing here.
    """
    code = getattr(function, "fn", function)
    parameters = code.__code__.co_varnames[: code.__code__.co_argcount]
    trace, passed = Trace(), []
    for name, value in zip(names or parameters, arguments, strict=False):
        if isinstance(value, np.ndarray):
            if not value.flags.c_contiguous:
                raise ValueError(f"{name} is not contiguous; copy it first")
            trace.itemsizes[name] = value.itemsize
            value = Pointer(name, value.reshape(-1))
        passed.append(value)
    options = {k: v for k, v in options.items() if k not in ("num_warps", "num_stages")}
    before, its_tl = (Running.program, Running.trace), code.__globals__.get("tl")
    if getattr(its_tl, "__name__", "") == "triton.language":  # another cell has imported Triton's
        code.__globals__["tl"] = sys.modules[__name__]
    try:
        Running.trace = trace
        for program in itertools.product(*map(builtins.range, grid)):
            Running.program = (*program, 0, 0)[:3]
            with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                code(*passed, **options)
    finally:
        Running.program, Running.trace = before
        if its_tl is not None:
            code.__globals__["tl"] = its_tl
    return trace


def in_numpy(module):
    """Has a module of kernels run on this twin from now on, with Triton installed or not.

    For a module of one's own, as `cut.module_from` makes it: its `tl`, and every function of it
    that Triton has compiled in its place, are replaced. Returns the module.
    """
    for name, value in vars(module).copy().items():
        if hasattr(value, "fn") and callable(value):
            setattr(module, name, Kernel(value.fn))
        elif type(value).__name__ == "constexpr":
            setattr(module, name, value.value)
    module.tl = sys.modules[__name__]
    return module
