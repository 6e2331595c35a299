"""`python3 -m labkit simulate`: the real scheduler on a virtual clock, a cost model for a model.

`cost` says how long a step takes, `replica` drives one scheduler, `fleet` many behind a router;
`traces` and `synthetic` say what arrives, `records` and `report` what came of it, `searching` how
much can be served. No torch, except to measure a cost model on this machine.
"""
