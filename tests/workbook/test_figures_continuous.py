from labkit.workbook.figures.continuous import measures_figure, slots_figure, used

STATIC = [["a", "a", "a"], ["b", None, None]]
CONTINUOUS = [["a", "a", "a"], ["b", "c", None]]


def test_wasted_slots_are_counted():
    assert used(STATIC) == (3, 4, 6)
    assert used(CONTINUOUS) == (3, 5, 6)


def test_the_picture_of_slots_tells_what_it_shows():
    picture = slots_figure({"static": STATIC, "continuous": CONTINUOUS}, "Slots")
    assert picture.story == (
        "static: 3 steps, 4 of 6 slots used; continuous: 3 steps, 5 of 6 slots used."
    )
    hatched = [p for axes in picture.axes for p in axes.patches if p.get_hatch()]
    assert len(hatched) == 3  # two slots of the one, one of the other
    assert picture._repr_png_()[0].startswith(b"\x89PNG")


def test_each_measure_has_a_panel_and_each_row_a_bar():
    rows = {"fast": {"gap, ms": 4.0, "TTFT, s": 0.5}, "slow": {"gap, ms": 40.0, "TTFT, s": 0.25}}
    picture = measures_figure(rows, "Two ways")
    assert [axes.get_xlabel() for axes in picture.axes] == ["gap, ms", "TTFT, s"]
    widths = [[bar.get_width() for bar in axes.patches] for axes in picture.axes]
    assert widths == [[4.0, 40.0], [0.5, 0.25]]
    assert picture.story == "fast: gap, ms 4, TTFT, s 0.5; slow: gap, ms 40, TTFT, s 0.25."
