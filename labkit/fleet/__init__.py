"""Many models and many replicas: which models are in memory, who gets which request.

`model_cache`, `routing`, `pools`, `breaker` and `scaling` decide, without sockets and clocks; the
simulator and the servers use the same ones. What serves with them: `models` (several in one
server), `router` (in front of any servers), `ray_serve` (replicas), `triton_server`. May import the
rooms below it; the workbook may import it.
"""
