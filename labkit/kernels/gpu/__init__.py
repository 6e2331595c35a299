"""Kernels for a GPU, in Triton (the kernel language), and what launches them.

`paged` holds the kernels of paged attention, `launch` chooses their sizes and starts them.
`triton` is there on Linux only: nothing outside this folder imports it, and other devices do
without. With TRITON_INTERPRET=1 the same kernels run on a CPU, slowly, to be tested.
"""
