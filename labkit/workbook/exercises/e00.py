"""Notebook 00: a warm-up on the roofline, to meet check, hint and reset."""

from labkit.workbook.registry import Case, Exercise, Mistake


def _step(num_flops, num_bytes, peak_flops, bandwidth):
    def observe(part):
        found = part.step_time(num_flops, num_bytes, peak_flops, bandwidth)
        return list(found) if isinstance(found, tuple) else f"a {type(found).__name__}, not a tuple"

    return observe


STEP_TIME = Exercise(
    id="00.1",
    module="labkit.measure.roofline",
    symbol="step_time",
    core=True,
    minutes=10,
    difficulty=1,
    cases=(
        Case("memory", _step(4, 80, 2, 10), [8.0, "memory"]),  # 2 s of computing, 8 s of moving
        Case("compute", _step(60, 20, 2, 10), [30.0, "compute"]),  # 30 s, 2 s
        Case("nothing_moved", _step(60, 0, 2, 10), [30.0, "compute"]),
        Case("same_roofs", _step(8, 80, 2, 2), [40.0, "memory"]),
        Case("equal", _step(6, 30, 2, 10), [3.0, "memory"]),
    ),
    mistakes=(
        Mistake(
            "added",
            (
                ("return compute_time, ", "return compute_time + memory_time, "),
                ("return memory_time, ", "return compute_time + memory_time, "),
            ),
        ),
        Mistake(
            "faster_decides",
            (
                ("return compute_time, ", "return memory_time, "),
                ('return memory_time, "memory"', 'return compute_time, "memory"'),
            ),
        ),
        Mistake(
            "bound_swapped",
            (
                ('compute_time, "compute"', 'compute_time, "memory"'),
                ('memory_time, "memory"', 'memory_time, "compute"'),
            ),
        ),
        Mistake(
            "roofs_swapped",
            (
                ("num_flops / peak_flops", "num_flops / bandwidth"),
                ("num_bytes / bandwidth", "num_bytes / peak_flops"),
            ),
        ),
        Mistake(
            "equal_is_compute", (("compute_time > memory_time", "compute_time >= memory_time"),)
        ),
    ),
)

EXERCISES = (STEP_TIME,)
