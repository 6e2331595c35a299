"""Many models and many replicas: which models are in memory, who gets which request.

`routing`, `pools` and `breaker` are pure (no sockets, no clock), so that the simulator and the
router over HTTP (`route`) decide alike. May import the rooms below it; the workbook may import it.
"""
