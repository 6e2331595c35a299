"""The files for a cluster: they parse, and what they name can be imported and built."""

import importlib
from pathlib import Path

import pytest
import yaml

import labkit

pytest.importorskip("ray", reason="Ray is not installed: pip install .[ray]")
from ray.serve.schema import ServeDeploySchema  # noqa: E402

from labkit.fleet.ray_serve import app as ray_serve  # noqa: E402

DEPLOY = Path(labkit.__file__).parent / "fleet" / "ray_serve" / "deploy"
ROOT = DEPLOY.parents[3]


def read(name):
    return yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))


def configs():
    return [read("serve.yaml"), yaml.safe_load(read("rayservice.yaml")["spec"]["serveConfigV2"])]


@pytest.mark.parametrize("config", configs(), ids=["serve", "rayservice"])
def test_serve_takes_it_and_what_it_names_is_there(config):
    (application,) = ServeDeploySchema.model_validate(config).applications
    module, name = application.import_path.split(":")
    built = getattr(importlib.import_module(module), name)(application.args)
    assert type(built).__name__ == "Application"


def test_both_files_serve_the_same():
    here, there = configs()
    assert here["applications"] == there["applications"]
    assert here["http_options"]["host"] == "127.0.0.1"


def test_the_manifest_is_a_rayservice_whose_image_is_a_parameter():
    manifest = read("rayservice.yaml")
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", "RayService")
    cluster = manifest["spec"]["rayClusterConfig"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    containers = [one for group in groups for one in group["template"]["spec"]["containers"]]
    assert {one["image"] for one in containers} == {"${IMAGE}"}
    assert f'"ray[serve]=={cluster["rayVersion"]}' in (ROOT / "pyproject.toml").read_text("utf-8")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ({"port": 8000}, "port; that goes into http_options"),
        ({"replica": 2}, "unrecognized arguments: --replica 2"),
        ({"router": "best"}, "invalid choice: 'best'"),
    ],
)
def test_args_that_are_no_options_are_refused_by_name(args, told):
    with pytest.raises(ValueError, match=told):
        ray_serve.build(args)


def test_args_are_the_words_of_the_command_line():
    assert ray_serve.words("max_replicas", 3) == ["--max-replicas", "3"]
    assert ray_serve.words("prefix-caching", False) == ["--no-prefix-caching"]
    assert ray_serve.words("cuda_graphs", True) == ["--cuda-graphs"]
    assert ray_serve.words("model", ["a", "b"]) == ["--model", "a", "--model", "b"]
