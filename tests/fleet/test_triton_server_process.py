"""Starting and ending Triton Inference Server: with a small program in its place."""

import os
import signal
import socket
import sys
import time

import pytest

from labkit.fleet.triton_server import install, server

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the server is built for Linux")

PROGRAM = """#!{python}
import http.server, signal, sys, time
port = int(next(word for word in sys.argv if word.startswith("--http-port=")).partition("=")[2])
what = "{what}"
if what == "taken":
    print(f"E1130 failed to start HTTP service: Socket '127.0.0.1:{{port}}' already in use")
    sys.exit(1)
if what == "broken":
    print("+----+")
    print("E1130 no backend was found: its import is unsupported")
    sys.exit(1)
if what == "stubborn":
    signal.signal(signal.SIGINT, signal.SIG_IGN)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def do_POST(self):
        self.send_response(400)
        self.end_headers()
        self.wfile.write(b'{{"error":"no such model"}}')
    def log_message(self, *_):
        pass

try:
    http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
except KeyboardInterrupt:
    pass
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Makes the program that is started behave in a way."""

    def make(what=""):
        program = tmp_path / "tritonserver"
        program.write_text(PROGRAM.format(python=sys.executable, what=what), encoding="utf-8")
        program.chmod(0o755)
        monkeypatch.setattr(install, "program", lambda: program)
        return tmp_path

    return make


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_listens_on_this_machine_only_and_loads_nothing_unasked(tmp_path):
    command = server.command(tmp_path, 1234, "labkit_1_2_")
    assert "--http-address=127.0.0.1" in command and "--http-port=1234" in command
    assert "--allow-grpc=false" in command and "--allow-metrics=false" in command
    assert "--model-control-mode=explicit" in command
    assert not [word for word in command if word.startswith("--load-model")]


def test_its_models_run_in_its_own_python_whatever_the_learner_has_set(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/elsewhere")
    found = server.variables()
    assert found["PATH"].startswith(str(install.venv()))
    assert "PYTHONPATH" not in found and "LD_LIBRARY_PATH" not in found


def test_it_lives_as_long_as_the_block(fake):
    with server.running(fake()) as one:
        assert one.is_ready() and is_alive(one.pid)
        with pytest.raises(server.ServerError, match="no such model"):
            one.post("repository/models/x/load")
    assert one.process.returncode is not None and not one.is_ready()
    one.end()  # again


def test_it_ends_when_the_block_fails(fake):
    with pytest.raises(ZeroDivisionError), server.running(fake()) as one:
        raise ZeroDivisionError
    assert one.process.returncode is not None


def test_one_that_does_not_stop_is_killed(fake, monkeypatch):
    monkeypatch.setattr(server, "STOP_S", 0.2)
    with server.running(fake("stubborn")) as one:
        pass
    assert one.process.returncode == -signal.SIGKILL


@pytest.fixture
def ports(monkeypatch):
    """Those that were tried."""
    tried, free = [], server.free_port
    monkeypatch.setattr(server, "free_port", lambda: tried.append(free()) or tried[-1])
    return tried


def test_one_that_does_not_start_says_why_and_is_not_tried_again(fake, ports):
    told = "doesn't start: E1130 no backend was found"
    with pytest.raises(server.ServerError, match=told), server.running(fake("broken")):
        pass
    assert len(ports) == 1


def test_a_taken_port_is_tried_again_and_then_told(fake, ports):
    with pytest.raises(server.ServerError, match="already in use"), server.running(fake("taken")):
        pass
    assert len(ports) == server.TRIES


def test_somebody_else_on_its_port_who_says_nothing_holds_nobody_up(fake, monkeypatch):
    monkeypatch.setattr(server, "READY_S", 0.1)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        monkeypatch.setattr(server, "free_port", lambda: other.getsockname()[1])
        with pytest.raises(server.ServerError, match="in use"), server.running(fake("taken")):
            pass


def test_one_that_hangs_at_its_start_is_ended(fake, monkeypatch):
    monkeypatch.setattr(server, "START_S", 0.3)
    monkeypatch.setattr(server.Server, "is_ready", lambda self: False)
    began = time.monotonic()
    with pytest.raises(server.ServerError, match="it said nothing"), server.running(fake()):
        pass
    assert time.monotonic() - began < 20


def test_what_the_dead_have_left_is_cleared_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "SHARED_MEMORY", tmp_path)
    mine, dead = f"labkit_{os.getpid()}_1_a", "labkit_999999999_1_b"
    others = ["labkit_x", "labkit_x_1_c", "somebody_999999999_1_"]
    for name in (mine, dead, *others):
        (tmp_path / name).touch()
    server.clear_of_the_dead()
    assert {path.name for path in tmp_path.iterdir()} == {mine, *others}
