"""Lanes of text: what stands where at which second."""

from labkit.workbook.figures.race import last_second, race_figure, story_of, text_at

LANES = {
    "streamed": [(0.2, "The "), (1.5, "blue."), (0.9, "sky is ")],
    "at the end": [(0.2, ""), (2.0, "The sky is blue.")],
    "silent": [],
}


def test_text_appears_in_order_of_time():
    assert text_at(LANES, 0.1) == {"streamed": "", "at the end": "", "silent": ""}
    assert text_at(LANES, 0.9)["streamed"] == "The sky is "
    assert text_at(LANES, 2.0) == {
        "streamed": "The sky is blue.",
        "at the end": "The sky is blue.",
        "silent": "",
    }


def test_the_story_tells_first_and_last_text():
    assert last_second(LANES) == 2.0 and last_second({}) == 0.0
    assert story_of(LANES) == (
        "streamed: first text after 200 ms, all 16 characters after 1.5 s; "
        "at the end: first text after 2 s, all 16 characters after 2 s; silent: no text."
    )


def test_a_race_is_a_picture_and_until_shows_its_beginning():
    for lanes, until in ((LANES, None), (LANES, 0.5), ({}, None), ({"a": []}, None)):
        assert race_figure(lanes, "t", until)._repr_png_()[0].startswith(b"\x89PNG")
    whole, half = (race_figure(LANES, "t", until).axes[0] for until in (None, 0.5))
    assert whole.get_xlim() == half.get_xlim()  # frames of a film
    assert max(half.lines[0].get_ydata()) == 4 and max(whole.lines[0].get_ydata()) == 16
