"""The five widgets in JupyterLab, operated with the keyboard, on both themes, narrow and wide."""

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from labkit import paths

PATIENCE_MS = 180_000
RED = "[data-mime-type='application/vnd.jupyter.stderr']"
NOTEBOOK = "widgets.ipynb"
CELLS = {
    "timeline": """
from labkit.engine.blocks import BlockPool
from labkit.engine.policies import make_policy
from labkit.engine.request import Request
from labkit.engine.scheduler import Scheduler
from labkit.measure.schedule import play
from labkit.workbook.widgets import timeline

requests = [
    Request(f"{'chat' if i % 3 else 'batch'}-{i}", [1] * (6 + 7 * (i % 4)), max_tokens=5 + i,
            arrival=1.7 * i, priority=int(i % 3 == 0))
    for i in range(9)
]
scheduler = Scheduler(BlockPool(24, 4, False), 16, 6, policy=make_policy("priority"))
timeline(play(scheduler, requests), "Nine requests, 16 tokens a step")
""",
    "block_xray": """
from labkit.workbook.figures.xray import XRay
from labkit.workbook.widgets import block_xray

chat = {"chat-1": (0, 1, 2, 5)}
more = chat | {"chat-2": (0, 1, 7), "agent": (8, 9, 10, 11, 12, 13, 14)}
full = {"chat-1": 53, "chat-2": 34, "agent": 97}
block_xray([
    XRay(16, 24, chat, full, note="chat-1 is computed."),
    XRay(16, 24, more, full, {20, 21}, ("chat-2", 50), "chat-2 reads past its table."),
    XRay(16, 24, more, full, {20, 21}, ("agent", 17), "agent writes where it should not."),
], "24 blocks of 16 tokens")
""",
    "batch_explorer": """
from labkit.measure.batching import BatchPoint
from labkit.workbook.widgets import batch_explorer

batch_explorer([
    BatchPoint(b, 400 * b / (b + 6), 0.05 + 0.01 * b, 0.02 + 0.001 * b, 1.2 + 0.09 * b, 5e8)
    for b in (1, 2, 4, 8, 16, 32, 64)
], "Batch sizes (made up)", slo_s=2.5)
""",
    "streaming_race": """
from labkit.workbook.widgets import streaming_race

words = "The sky is blue because air scatters blue light more than red light.".split(" ")
lanes = {"static, at the end": (4, 0), "static, streamed": (1, 0.2),
         "continuous, at the end": (2.5, 0), "continuous, streamed": (0.3, 0.15)}
streaming_race({
    name: [(first + i * gap, word + " ") for i, word in enumerate(words)]
    for name, (first, gap) in lanes.items()
}, "Streaming x batching (made up)")
""",
    "workload_designer": """
from labkit.workbook.widgets import workload_designer

workload_designer()
""",
}


@pytest.fixture
def my_dir(tmp_path) -> Path:
    """A learner's folder with a notebook of the five widgets."""
    folder = tmp_path / "my"
    cells = [new_code_cell(code.strip()) for code in CELLS.values()]
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    folder.mkdir()
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), folder / NOTEBOOK)
    return folder


@pytest.fixture
def lab(browser, address):
    """The notebook of widgets in JupyterLab, all cells run."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.set_default_timeout(PATIENCE_MS)
    try:
        page.goto(re.sub(r"/tree/[^?]*", f"/tree/{NOTEBOOK}", address))
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
        page.locator(".lm-MenuBar-item", has_text=re.compile("^Run$")).click()
        page.locator(".lm-Menu-item", has_text=re.compile("^Run All Cells")).click()
        page.wait_for_function(
            """red => {
                const counts = [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')]
                return counts.every(count => /\\[\\d+\\]/.test(count.textContent)) ||
                    document.querySelector(red)
            }""",
            arg=RED,
        )
        yield page
    finally:
        page.close()


def test_the_five_widgets_are_operated_with_the_keyboard(lab):
    assert lab.locator(RED).all_inner_texts() == []
    operate_timeline(lab)
    operate_xray(lab)
    operate_batches(lab)
    operate_race(lab)
    operate_designer(lab)
    for theme in ("Light", "Dark"):
        set_theme(lab, theme)
        for width in (1400, 400):
            keep_pictures(lab, f"{theme.lower()}-{width}", width)
    assert lab.locator(RED).all_inner_texts() == []


def operate_timeline(page) -> None:
    """Arrow keys step, End and Home go to the ends, space plays and pauses, a click jumps."""
    widget = widget_of(page, "timeline")
    slider, words = widget.get_by_role("slider"), widget.get_by_role("status")
    assert "Step 1 of 35, 0 to 1 s: 6 tokens of at most 16." in words.inner_text()
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert words.inner_text().startswith("Step 3 of 35")
    page.keyboard.press("ArrowLeft")
    assert words.inner_text().startswith("Step 2 of 35")
    page.keyboard.press("End")
    assert words.inner_text().startswith("Step 35 of 35") and "has ended" in words.inner_text()
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    widget.get_by_role("button", name="Pause").wait_for()
    playing = words.element_handle()
    page.wait_for_function("text => text.textContent.startsWith('Step 4')", arg=playing)
    page.keyboard.press("Space")
    widget.get_by_role("button", name="Play").wait_for()
    before = words.inner_text()
    widget.get_by_role("button", name="One step on").press("Enter")
    assert words.inner_text() != before
    widget.locator("svg").click(position={"x": 500, "y": 60})
    clicked = int(re.match(r"Step (\d+) of 35", words.inner_text())[1])
    assert 10 < clicked < 30  # some way to the right


def operate_xray(page) -> None:
    widget = widget_of(page, "block_xray")
    words = widget.get_by_role("status")
    assert words.inner_text().startswith("chat-1 is computed. 1 request holds 4 of 24 blocks.")
    widget.get_by_role("slider").focus()
    page.keyboard.press("ArrowRight")
    assert "Blocks 0 and 1 are shared." in words.inner_text()
    assert "token 50 of chat-2 would be in entry 3" in words.inner_text()
    assert marks(widget, "cached") == 2 and marks(widget, "!") == 1
    page.keyboard.press("ArrowRight")
    assert marks(widget, "!") == 2  # in the pool and in the table
    page.keyboard.press("ArrowLeft")


def operate_batches(page) -> None:
    """A stricter SLO gives a smaller best batch; one that nobody meets gives none."""
    widget = widget_of(page, "batch_explorer")
    words, best = widget.get_by_role("status"), widget.locator(".labkit-best")
    assert best.text_content() == "best: 8" and "the best is batch 8" in words.inner_text()
    widget.get_by_role("slider").focus()
    for _ in range(18):
        page.keyboard.press("ArrowLeft")
    assert best.text_content() == "best: 4"
    page.keyboard.press("Home")
    assert best.count() == 0 and "goodput is 0" in words.inner_text()
    page.keyboard.press("End")
    assert best.text_content() == "best: 64"
    widget.get_by_role("combobox").select_option("ttft_s")
    assert "Within TTFT" in words.inner_text()


def operate_race(page) -> None:
    widget = widget_of(page, "streaming_race")
    lane = widget.get_by_role("group", name="continuous, streamed").locator(".labkit-text")
    last = widget.get_by_role("group", name="static, at the end").locator(".labkit-text")
    assert lane.inner_text() == ""
    widget.get_by_role("combobox").select_option("10")
    widget.get_by_role("slider").focus()
    page.keyboard.press("Space")
    page.wait_for_function("lane => lane.textContent.includes('blue')", arg=lane.element_handle())
    page.wait_for_function("lane => lane.textContent.includes('red')", arg=last.element_handle())
    assert "first text after" in widget.locator(".labkit-words").inner_text()
    page.keyboard.press("Home")
    assert lane.inner_text() == "" == last.inner_text()
    for _ in range(60):  # of 200 to the end
        page.keyboard.press("ArrowRight")
    assert lane.inner_text().strip() and last.inner_text() == ""


def operate_designer(page) -> None:
    """A key on a slider serves the design anew: chat first, then first come, first served."""
    cell = page.locator(".jp-CodeCell").nth(4)
    words = cell.locator(".jp-OutputArea").get_by_role("status")
    picture = cell.locator(".widget-image")
    before, source = words.inner_text(), picture.get_attribute("src")
    assert before.startswith("Modelled. chat: TTFT")
    cell.get_by_role("slider").nth(0).focus()
    page.keyboard.press("ArrowRight")
    words.filter(has_not_text=before).wait_for()
    assert picture.get_attribute("src") != source
    assert picture.evaluate("image => image.naturalWidth") > 0
    cell.get_by_role("combobox").select_option("fcfs")
    words.filter(has_text=re.compile(r"chat: TTFT p50 [\d.]+ s,")).wait_for()


# ---- what a learner's hands and eyes do


def widget_of(page, name: str):
    """The widget that the cell of this name shows."""
    index = [*CELLS].index(name)
    found = page.locator(".jp-CodeCell").nth(index).locator(".labkit-widget")
    found.wait_for()
    found.scroll_into_view_if_needed()
    return found


def marks(widget, text: str) -> int:
    """How often exactly this text stands in the drawing."""
    return widget.locator("svg").get_by_text(text, exact=True).count()


def set_theme(page, theme: str) -> None:
    page.locator(".lm-MenuBar-item", has_text=re.compile("^Settings$")).click()
    page.locator(".lm-Menu-item", has_text=re.compile("^Theme")).hover()
    page.locator(".lm-Menu-item", has_text=re.compile(f"^JupyterLab {theme}$")).click()
    page.wait_for_function(
        "light => document.body.dataset.jpThemeLight === light", arg=str(theme == "Light").lower()
    )


def keep_pictures(page, name: str, width: int) -> None:
    """A screenshot of each output as wide as said; nothing is wider than its place."""
    folder = Path(os.environ.get("LABKIT_ARTIFACTS") or paths.repo_root() / "artifacts")
    page.add_style_tag(content=f".jp-OutputArea-output {{ max-width: {width}px }}")
    page.wait_for_timeout(300)  # the next frame, in which widgets find their width
    for index, widget in enumerate(CELLS):
        output = page.locator(".jp-CodeCell").nth(index).locator(".jp-OutputArea-output").last
        output.scroll_into_view_if_needed()
        assert output.evaluate("area => area.scrollWidth - area.clientWidth") <= 1, (name, widget)
        output.screenshot(path=folder / "browser" / f"widget-{widget}-{name}.png")
