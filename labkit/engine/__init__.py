"""Requests in, token events out; one file per rung of the ladder.

An engine sees token ids only: text, HTTP and clocks of clients stay outside. It may import
`labkit.model` and `labkit.kernels`, nothing above. `rungs.make` makes any of them by name;
`labkit.library` puts text around it.
"""
