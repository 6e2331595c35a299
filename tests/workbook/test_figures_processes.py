"""The figures of notebook 07: each tells its numbers in words, and can be drawn."""

from types import SimpleNamespace

from labkit.workbook.figures import processes as figures


def drawn(picture) -> bool:
    return picture._repr_png_()[0].startswith(b"\x89PNG")


def test_the_map_and_the_states_name_all_that_is_in_them():
    map_, life = figures.map_figure(), figures.life_figure()
    assert drawn(map_) and drawn(life)
    assert all(word in map_.story for word in ("Add", "Abort", "Step", "scheduler", "tickets"))
    assert all(state in life.story for state in ("WAITING", "RUNNING", "PREEMPTED", "FINISHED"))


def test_homes_are_drawn_beside_each_other():
    speeds = {"in-process": 10, "thread": 20.5, "process": 3000}
    rows = [{"home": home, "tokens_per_s": speed} for home, speed in speeds.items()]
    picture = figures.homes_figure({"here": rows, "there\n(modelled)": rows[::2]})
    assert drawn(picture)
    assert picture.story == (
        "here: in-process 10, thread 20.5, process 3,000 tokens/s; "
        "there (modelled): in-process 10, process 3,000 tokens/s."
    )


def test_causes_without_a_look_at_the_cache_are_drawn_too():
    row = {"cause": "baseline", "busy": 0.5, "tokens_per_s": 1000.0, "queue_p50_s": 0.0,
           "ttft_p50_s": 0.0, "kv_peak": None, "step_s": 0.01}  # fmt: skip
    picture = figures.bottlenecks_figure([row, {**row, "cause": "kv", "kv_peak": 1.0}])
    assert drawn(picture)
    assert "baseline: device busy 50%, 1,000 tokens/s" in picture.story


def test_a_death_is_drawn_on_a_line_of_time():
    death = SimpleNamespace(errors=[0.1, 0.3], unhealthy=0.2, ready=4.0, answer=4.5)
    picture = figures.death_figure(death)
    assert drawn(picture)
    assert picture.story.startswith("last stream has its error event after 0.30 s;")
    assert picture.story.endswith("a new request has a token after 4.50 s.")
