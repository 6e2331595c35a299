"""Models and their names on the command line."""

import pytest

from labkit import bootstrap, commands, environment
from labkit.serving import naming, options


def models(*given: str) -> dict[str, str]:
    return options.parse(given).models


def test_one_model_goes_by_what_it_was_called():
    chosen = options.parse([])
    assert (chosen.model, chosen.served_model_name) == ("smollm2-135m", "smollm2-135m")
    chosen = options.parse(["--model", "tiny", "--served-model-name", "small"])
    assert (chosen.model, chosen.served_model_name) == ("tiny", "small")
    assert not naming.has_several(chosen)


def test_several_models_have_names_and_the_first_is_the_one_without():
    given = ("--model", "tiny", "--model", "chat=Qwen/Qwen3-0.6B", "--model", "again=tiny")
    assert models(*given) == {"tiny": "tiny", "chat": "Qwen/Qwen3-0.6B", "again": "tiny"}
    chosen = options.parse(given)
    assert (chosen.model, chosen.served_model_name) == ("tiny", "tiny")
    assert naming.has_several(chosen)


def test_a_folder_may_have_an_equals_sign_in_its_name(tmp_path, monkeypatch):
    folder = tmp_path / "lr=0.1"
    folder.mkdir()
    monkeypatch.setenv("LABKIT_STARTED_IN", str(tmp_path))
    assert models("--model", "lr=0.1") == {"lr=0.1": str(folder)}
    assert models("--model", f"best={folder}") == {"best": str(folder)}
    assert models("--model", str(folder), "--served-model-name", "b") == {"b": str(folder)}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--model", "tiny", "--model", "tiny"], "tiny is there twice"),
        (["--model", "a=tiny", "--model", "a=other"], "a is there twice"),
        (["--model", "=tiny"], "'=tiny'"),
        (["--model", "a="], "'a='"),
        (["--model", "a=tiny", "--served-model-name", "b"], "--served-model-name b"),
        (["--model", "a", "--model", "b", "--served-model-name", "c"], "--served-model-name c"),
        (["--model", "a", "--model", "b", "--in-thread"], "--in-thread"),
        (["--model-memory", "1GB", "--in-process"], "--in-process"),
        (["--model-memory", "0"], "0 bytes"),
        (["--model-memory", "lots"], "'lots'"),
        (["--model-wait", "0"], "'0'"),
        (["--model", "a", "--model", "b", "--device", "cuda"], "--model-memory"),
    ],
)
def test_what_cannot_be_meant_is_told_in_one_line(given, named, capsys):
    with pytest.raises(SystemExit) as ended:
        options.parse(given)
    said = capsys.readouterr().err
    assert ended.value.code == 2 and named in said and len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("given", "module"),
    [
        ([], "labkit.serving"),
        (["--model", "tiny"], "labkit.serving"),
        (["--model", "tiny", "--model-memory", "1GB"], "labkit.fleet.models"),
        (["--model", "a=tiny", "--model", "b=tiny"], "labkit.fleet.models"),
    ],
)
def test_serve_starts_what_it_takes(given, module, monkeypatch):
    started = []
    monkeypatch.setattr(bootstrap, "ensure_environment", lambda *_, **__: None)
    monkeypatch.setattr(environment, "become", lambda name, _: started.append(name) or 0)
    assert commands.main(["serve", *given], "") == 0 and started == [module]


def test_the_server_of_one_model_refuses_several(capsys):
    from labkit.serving.__main__ import main

    assert main(["--model", "a=tiny", "--model", "b=tiny"]) == 2
    assert "labkit.fleet.models" in capsys.readouterr().err
