"""What belongs to a Ray cluster, and what only looks at its files."""

import os
import shutil
import subprocess
import sys

import pytest

from labkit.fleet.ray_serve import sitter

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Ray for Windows is a beta")


@pytest.fixture
def sleep(tmp_path):
    """Starts a process that does nothing, with a file in a folder open."""
    started = []

    def start(name="sleep", folder="cluster", **variables):
        log = tmp_path / folder / "log"
        log.parent.mkdir(exist_ok=True)
        log.touch()
        with log.open() as file:
            started.append(
                subprocess.Popen(
                    [name, "600"], executable=shutil.which("sleep"), stdin=file,
                    env={**os.environ, **variables},
                )
            )  # fmt: skip
        return started[-1].pid

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_process_of_the_cluster_has_its_mark_or_is_rays_and_has_a_file_of_it_open(
    sleep, tmp_path
):
    marked = sleep(folder="elsewhere", **{sitter.MARK: "mark"})
    agent = sleep("ray::DashboardAgent")
    sleep()  # somebody reads a log
    sleep("ray::DashboardAgent", "elsewhere")  # of another cluster
    sleep(**{sitter.MARK: "another mark"})
    found = sitter.members("mark", str(tmp_path / "cluster"), set())
    assert {one.pid for one in found} == {marked, agent}
    left = sitter.members("mark", str(tmp_path / "cluster"), {marked})
    assert [one.pid for one in left] == [agent]
