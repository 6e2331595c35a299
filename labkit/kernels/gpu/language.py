"""`tl` and `jit` of Triton, the kernel language, or where it isn't installed their NumPy twin."""

try:
    import triton.language as tl
    from triton import jit

    IS_TRITON = True
except ImportError:  # macOS, Windows
    from labkit.kernels.gpu import twin as tl
    from labkit.kernels.gpu.twin import jit

    IS_TRITON = False

__all__ = ["IS_TRITON", "jit", "tl"]
