"""The report as a person opens it: narrow and wide, light and dark, on paper, and with the network
watched. What it looks like is kept."""

import os
from pathlib import Path

import full_account
import pytest

from labkit import paths
from labkit.workbook.ten_questions.account import account
from labkit.workbook.ten_questions.page import html

SHOTS = Path(os.environ.get("LABKIT_ARTIFACTS") or paths.repo_root() / "artifacts") / "browser"
CONTRAST = """names => names.map(name => {
  const channel = c => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number);
    return .2126 * channel(r) + .7152 * channel(g) + .0722 * channel(b);
  };
  const found = document.querySelector(name), style = getComputedStyle(found);
  const drawn = found instanceof SVGElement ? style.fill : style.color;
  let box = found;
  while (getComputedStyle(box).backgroundColor === 'rgba(0, 0, 0, 0)') box = box.parentElement;
  const pair = [light(drawn), light(getComputedStyle(box).backgroundColor)];
  return (Math.max(...pair) + .05) / (Math.min(...pair) + .05);
})"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The page of a learner who has done everything, in English and Korean."""
    folder = tmp_path_factory.mktemp("report")
    pages = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_MY", str(folder / "my"))
        full_account.fill()
        for lang in ("en", "ko"):
            patch.setenv("LABKIT_LANG", lang)
            pages[lang] = folder / f"{lang}.html"
            paths.write_atomic(pages[lang], html(account()))
    return pages


@pytest.fixture
def opened(browser):
    """Opens a page; whatever it says on the console or asks the network for is collected."""
    contexts = []

    def open_page(path, width=1400, scheme="light"):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        contexts.append(context)
        page = context.new_page()
        page.said = []
        page.on("console", lambda message: page.said.append(message.text))
        page.on("request", lambda asked: page.said.append(asked.url[:80]))
        page.goto(path.as_uri())
        page.said = [line for line in page.said if not line.startswith(("file:", "data:"))]
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("lang", ["en", "ko"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_it_reads_at_every_width_and_in_both_themes(written, opened, lang, scheme, width):
    page = opened(written[lang], width, scheme)
    assert page.said == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator("section h2").count() >= 12
    small = page.evaluate(
        "[...document.querySelectorAll('.scale')].map(s => s.getBoundingClientRect().width / 360)"
    )
    assert min(small) > 0.85  # so that 11 pixels stay 10
    names = ["p", ".muted", ".verdict.sharpens", ".supports > b", ".tick", ".label", "a"]
    assert min(page.evaluate(CONTRAST, names)) >= 4.5
    page.screenshot(path=SHOTS / f"report-{lang}-{scheme}-{width}.png", full_page=True)


def test_every_picture_is_drawn(written, opened):
    page = opened(written["en"])
    widths = page.evaluate("[...document.images].map(image => image.naturalWidth)")
    assert len(widths) == len(full_account.COMPARED) and min(widths) > 0


def test_a_script_that_got_in_would_not_run(written, opened, tmp_path):
    whole = written["en"].read_text(encoding="utf-8")
    do = "document.title = 'owned'"
    attack = f'<script>{do}</script><img src=x onerror="{do}">'
    poisoned = tmp_path / "poisoned.html"
    poisoned.write_text(whole.replace("<main>", f"<main>{attack}"), encoding="utf-8")
    page = opened(poisoned)
    page.wait_for_timeout(200)
    assert page.title() == "Ten questions, answered with my own numbers"


def test_it_prints(written, opened):
    page = opened(written["en"], scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.pdf(path=SHOTS / "report.pdf", format="A4")
    assert (SHOTS / "report.pdf").read_bytes().startswith(b"%PDF")
