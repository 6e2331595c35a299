"""Runs the kernels by Triton's interpreter, in NumPy on a CPU: slowly, and to the same numbers.

`TRITON_INTERPRET=1` has to be set before anything imports triton.
"""

import os


def is_on() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


def mend_products() -> None:
    """Has the interpreter multiply bfloat16 rightly.

    Triton 3.7.1's keeps them as 16 bits in an integer, and `tl.dot` multiplies these integers.
    """
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    dot = InterpreterBuilder.create_dot
    if getattr(dot, "is_mended", False):
        return

    def widened(handle):
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        bits = handle.data.astype("uint32") << 16
        return TensorHandle(bits.view("float32"), tl.float32)

    def create_dot(self, a, b, d, *more):
        return dot(self, widened(a), widened(b), d, *more)

    create_dot.is_mended = True
    InterpreterBuilder.create_dot = create_dot
