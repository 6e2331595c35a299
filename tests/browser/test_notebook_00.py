"""Notebook 00 as a learner meets it: in JupyterLab, on an own copy, with the real model."""

import re

from labkit.workbook.catalogue import text

CHECK = 'check("00.1")'
RED = "[data-mime-type='application/vnd.jupyter.stderr']"  # as JupyterLab shows tracebacks too
SOLUTION = (
    "compute, memory = num_flops / peak_flops, num_bytes / bandwidth",
    'return max(compute, memory), "compute" if compute > memory else "memory"',
)


def test_run_all_reaches_the_end_of_notebook_00(page):
    menu(page, "Edit", "Clear Outputs of All Cells")  # what is found later was made here
    menu(page, "Run", "Run All Cells")
    wait_until_run(page)

    assert errors(page) == []
    assert all(width > 0 for width in figure_widths(page, "roofline_figure("))
    assert all(width > 0 for width in figure_widths(page, "ladder_figure("))
    assert re.search(r"\w+ \w+.*\d+ tokens in ", output(page, "engine.step()"), re.DOTALL)
    assert text("check.not attempted", "en") in output(page, CHECK)
    assert cell(page, 'predict("00.bandwidth"').get_by_role("slider").is_visible()


def test_exercise_is_solved_with_a_hint_and_kept(page, my_dir):
    hint = page.locator(".jp-RenderedMarkdown").get_by_text(text("00.1.hint1", "en"))
    assert not hint.is_visible()
    page.locator("summary", has_text=text("hint.fold", "en", number=1)).click()
    hint.wait_for(state="visible")

    cell(page, 'start("00")').click()
    page.keyboard.press("Shift+Enter")
    write_in_place_of_the_stub(page, SOLUTION)
    page.keyboard.press("Shift+Enter")  # runs the exercise and goes on to its check
    page.keyboard.press("Shift+Enter")

    cell(page, CHECK).locator(".jp-OutputArea").get_by_text(text("check.passed", "en")).wait_for()
    part = (my_dir / "parts" / "00.1.py").read_text(encoding="utf-8")
    assert all(line in part for line in SOLUTION)
    assert "@exercise" not in part  # the part alone, as it is spliced into labkit


# ---- what a learner's hands and eyes do


def menu(page, name: str, entry: str) -> None:
    page.locator(".lm-MenuBar-item", has_text=re.compile(f"^{name}$")).click()
    page.locator(".lm-Menu-item", has_text=re.compile(f"^{entry}")).click()


def cell(page, code: str):
    """The one code cell whose text contains `code`."""
    return page.locator(".jp-CodeCell").filter(has=page.locator(".cm-content", has_text=code))


def output(page, code: str) -> str:
    return cell(page, code).locator(".jp-OutputArea").inner_text()


def wait_until_run(page) -> None:
    """Until each code cell has its count, or something red has come instead."""
    page.wait_for_function(
        """red => {
            const counts = [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')]
            return counts.every(count => /\\[\\d+\\]/.test(count.textContent)) ||
                document.querySelector(red)
        }""",
        arg=RED,
    )


def errors(page) -> list[str]:
    """Tracebacks and warnings in the notebook."""
    return page.locator(RED).all_inner_texts()


def figure_widths(page, code: str) -> list[int]:
    """The width of each picture below a cell, 0 for one that can't be drawn; at least one."""
    pictures = cell(page, code).locator(".jp-OutputArea img")
    pictures.first.wait_for()
    return pictures.evaluate_all("pictures => pictures.map(picture => picture.naturalWidth)")


def write_in_place_of_the_stub(page, lines: tuple[str, ...]) -> None:
    """Types the lines over the `...` at the end of the exercise cell."""
    cell(page, '@exercise("00.1"').locator(".cm-content").click()
    page.keyboard.press("ControlOrMeta+End")
    page.keyboard.press("Shift+Home")
    page.keyboard.type("\n".join(lines))
