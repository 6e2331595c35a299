"""Many replicas of one model: who gets which request.

`routing` is pure (no sockets, no clock), so that the simulator and a router over HTTP decide
alike. May import the rooms below it; the workbook may import it.
"""
