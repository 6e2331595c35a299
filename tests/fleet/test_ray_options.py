"""`serve --replicas`: what it can be told, and where it can't be."""

import pytest

from labkit import bootstrap, commands, environment, ray_wheel
from labkit.console import SetupError
from labkit.fleet.routing import ROUTERS
from labkit.serving import options, replica_options


def test_the_routers_are_those_of_the_fleet():
    assert sorted(ROUTERS) == [*replica_options.ROUTERS]


def test_defaults():
    found = options.parse(["--replicas", "2"])
    assert (found.max_replicas, found.router, found.models_each) == (2, "prefix", 1)
    assert options.parse([]).replicas is None


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ("--max-replicas 3", "--max-replicas is of several replicas; add --replicas N"),
        ("--router prefix", "--router is of several replicas"),
        ("--replicas 3 --max-replicas 2", "--max-replicas 2 is less than --replicas 3"),
        ("--replicas 2 --requests-each 4", "add --max-replicas N"),
        ("--replicas 2 --models-each 2", "--models-each is 2 and --model is there 1 times"),
        ("--replicas 2 --mine", "--mine is of one server"),
        ("--replicas 2 --model-wait 3", "--model-wait is of one server"),
        ("--replicas 0", "0 is too few"),
        ("--replicas 2 --router best", "invalid choice: 'best'"),
    ],
)
def test_what_contradicts_itself_is_refused(argv, told, capsys):
    with pytest.raises(SystemExit) as ended:
        options.parse(argv.split())
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("machine", "told"),
    [
        (("Windows", "AMD64", (3, 12)), "Ray for Windows is a beta"),
        (("Darwin", "x86_64", (3, 12)), "no wheel for Intel Macs"),
        (("Linux", "x86_64", (3, 15)), "this is Python 3.15, and Ray 2.60 has wheels for 3.10 to"),
    ],
)
def test_where_there_is_no_ray_that_is_said_before_anything_is_installed(machine, told):
    with pytest.raises(SetupError, match=told) as caught:
        ray_wheel.refuse(*machine)
    assert "labkit route" in caught.value.command


def test_elsewhere_nothing_is_refused():
    ray_wheel.refuse("Linux", "aarch64", (3, 11))
    ray_wheel.refuse("Darwin", "arm64", (3, 14))


@pytest.mark.parametrize(
    ("argv", "extra", "module"),
    [([], None, "labkit.serving"), (["--replicas", "2"], "ray", "labkit.fleet.ray_serve.local")],
)
def test_ray_is_installed_when_it_is_first_asked_for(argv, extra, module, monkeypatch):
    ran = []
    monkeypatch.setattr(ray_wheel, "refuse", lambda: None)
    monkeypatch.setattr(
        bootstrap, "ensure_environment", lambda extra=None, **more: ran.append(extra)
    )
    monkeypatch.setattr(environment, "become", lambda module, arguments: ran.append(module))
    commands.run_serve(argv)
    assert ran == [extra, module]
