"""`python3 -m labkit bench`: the benchmarks, each with its formula, its machine and its seed.

One file for each benchmark, what they share in `cli`, `report` and `drive`. Importing a
benchmark loads no torch, so that its help is told before anything is installed.
"""
