"""The capstone: meet the SLOs of three classes at the least cost, on the simulator.

`workloads` has what arrives and what each class is promised, `configuration` what can be chosen,
`scoring` what a choice costs, `board` the leaderboard, `attacks` how to break a neighbour's choice.
No torch, no clock: a score is the same on every machine.
"""

from labkit.measure.capstone.attacks import ATTACKS, Attack, AttackError, attack
from labkit.measure.capstone.board import leaderboard, save
from labkit.measure.capstone.configuration import GREEDY, Configuration, ConfigurationError
from labkit.measure.capstone.scoring import Score, score
from labkit.measure.capstone.workloads import CLASSES, Workload, make_workload

__all__ = [
    "ATTACKS",
    "CLASSES",
    "GREEDY",
    "Attack",
    "AttackError",
    "Configuration",
    "ConfigurationError",
    "Score",
    "Workload",
    "attack",
    "leaderboard",
    "make_workload",
    "save",
    "score",
]
