"""What holds for the prose of every notebook, in both languages."""

import re

import pytest

from labkit.paths import repo_root
from labkit.workbook.source import LANGUAGES, read

SOURCES = [read(path) for path in sorted((repo_root() / "notebooks" / "source").glob("*.py"))]
PROSE = [
    pytest.param(source, lang, id=f"{source.number}-{lang}")
    for source in SOURCES
    for lang in LANGUAGES
]


def prose(source, lang):
    return [cell.prose(lang) for cell in source.cells if cell.kind == "prose"]


@pytest.mark.parametrize(("source", "lang"), PROSE)
def test_no_tilde_strikes_text_out(source, lang):
    """Markdown in JupyterLab takes `50~120 … 2~3` for text to be struck out."""
    for text in prose(source, lang):
        without_code = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
        assert "~" not in without_code, text


@pytest.mark.parametrize(("source", "lang"), PROSE)
def test_only_notebooks_that_exist_are_named(source, lang):
    names = {other.name for other in SOURCES}
    for text in prose(source, lang):
        assert set(re.findall(r"(\d\d_\w+)\.ipynb", text)) <= names


@pytest.mark.parametrize(("source", "lang"), PROSE)
def test_the_last_section_is_about_the_servers_that_people_run(source, lang):
    headings = re.findall(r"^## (.+)$", "\n".join(prose(source, lang)), re.MULTILINE)
    assert "vLLM" in headings[-1] and "Triton Inference Server" in headings[-1]
