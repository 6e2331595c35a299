"""`bench kernel`: its tables come from the kernels; without a GPU it says nothing of speed."""

import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="triton is there on Linux only")

from labkit.kernels.gpu import compiled, paged  # noqa: E402
from labkit.kernels.gpu.compiled import Shape  # noqa: E402
from labkit.measure.bench import cli, kernel, kernel_cases  # noqa: E402
from labkit.paths import repo_root  # noqa: E402

KEPT = sorted((repo_root() / "labkit" / "measure" / "figures").glob("kernel-*.json"))


def test_errors_and_needs_without_a_gpu(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # wherever this runs
    monkeypatch.setattr(kernel_cases, "DTYPES", ("float32",))
    monkeypatch.setattr(kernel_cases, "HEAD_DIMS", (64,))
    monkeypatch.setattr(compiled, "shapes", lambda: [Shape("merge", "float32", 64)])
    file = tmp_path / "kernel.json"
    assert cli.main(["kernel", "--json", str(file)]) == 0
    done = json.loads(file.read_text(encoding="utf-8"))
    (row,) = done["errors"]
    assert all(0 < row[kind] < 1e-5 for kind in kernel_cases.LENGTHS)
    assert {need["capability"] for need in done["needs"]} == {*compiled.SHARED_LIMIT}
    assert "speed" not in done and "no GPU here" in capsys.readouterr().out


def test_an_oracle_that_is_wrong_would_be_seen(monkeypatch):
    """The error is against another computation: double the values, and it is large."""
    batch, q, _, own = kernel_cases.paged_case([(20, 1)], 2, 1, 16, 8, torch.float32, "cpu")
    once = kernel_cases.oracle(batch, q, own)
    own[0][1] *= 2
    torch.testing.assert_close(kernel_cases.oracle(batch, q, own), 2 * once)


def test_a_child_that_fails_is_told(monkeypatch):
    with pytest.raises(RuntimeError, match=r"(?s)compiled failed: .*JSONDecodeError"):
        list(kernel.lines_of("labkit.kernels.gpu.compiled", None, "no JSON"))


def test_the_kept_table_is_of_these_kernels_and_none_of_it_spills():
    kept = json.loads(KEPT[-1].read_text(encoding="utf-8"))
    assert kept["sources"] == kernel.sources()
    assert len(kept["needs"]) == len([*compiled.shapes()]) * len(compiled.SHARED_LIMIT)
    for need in kept["needs"]:
        assert need["spilled"] == 0, need
        assert need["shared"] <= 1024 * compiled.SHARED_LIMIT[need["capability"]], need


def test_the_name_of_the_sources_changes_with_the_code_and_not_with_its_words(
    monkeypatch, tmp_path
):
    before, copy = kernel.sources(), tmp_path / "paged.py"
    text = Path(paged.__file__).read_text(encoding="utf-8")
    monkeypatch.setattr(paged, "__file__", str(copy))
    copy.write_text(text.replace("Takes one tile more", "Takes a tile more"), encoding="utf-8")
    assert kernel.sources() == before
    copy.write_text(text.replace("tl.exp2(most - largest)", "tl.exp2(most)"), encoding="utf-8")
    assert kernel.sources() != before
