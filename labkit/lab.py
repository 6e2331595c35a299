"""Opens JupyterLab on the learner's own notebooks; runs inside `.venv`."""

import argparse
import json
import os
import secrets
import socket
import sys
import threading
import time
import webbrowser
from pathlib import Path

from labkit import paths
from labkit.console import SetupError, make_safe
from labkit.environment import again

HOST = "127.0.0.1"
FIRST_PORT = 8888


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `python3 -m labkit lab`."""
    parser.add_argument("notebook", nargs="?", default="00", metavar="NN", help="notebook to open")
    parser.add_argument(
        "--port", type=port_number, help=f"port to use (default: {FIRST_PORT} or the next)"
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address and open nothing"
    )
    parser.add_argument(
        "--lang",
        choices=("en", "ko"),
        help="language of notebooks and messages (default: what you chose in notebook 00, else en)",
    )


def main(argv: list[str]) -> int:
    """Brings the learner's copies up to date, then serves them until Ctrl-C. Raises SetupError."""
    parser = argparse.ArgumentParser(prog="python3 -m labkit lab")
    add_options(parser)
    options = parser.parse_args(argv)
    port = choose_port(options.port)
    if port is None:
        why = "another program uses it, or this user may not"
        raise SetupError(f"port {options.port} can't be opened", why, again("lab"))
    from labkit.workbook import catalogue, copies

    if options.lang:
        os.environ["LABKIT_LANG"] = options.lang  # for the messages of this session's kernels
    copies.sync()
    page = find_notebook(paths.my_dir(), options.notebook, catalogue.current_language())
    if page is None:
        there = sorted(path.name[:2] for path in paths.my_dir().glob("[0-9][0-9]_*.ipynb"))
        raise SetupError(
            f"there is no notebook {options.notebook!r} in {paths.my_dir()}",
            f"there are {', '.join(there) or 'none: they are built by labkit notebooks build'}",
            again("lab"),
        )
    token = secrets.token_urlsafe(24)
    address = f"http://{HOST}:{port}/lab/tree/{page}?token={token}"
    opener = None if options.no_browser else browser()
    threading.Thread(target=announce, args=(port, address, opener), daemon=True).start()
    serve(port, token)
    return 0


def port_number(text: str) -> int:
    """A port as it may be asked for. ArgumentTypeError for anything else."""
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; choose one from 1 to 65535")
    return int(text)


def choose_port(wanted: int | None) -> int | None:
    """`wanted`, or the first free one; None when `wanted` is taken."""
    ports = [wanted] if wanted else range(FIRST_PORT, FIRST_PORT + 100)
    return next((port for port in ports if is_free(port)), None)


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of this machine."""
    with socket.socket() as probe:
        if sys.platform != "win32":  # there it would allow two servers on one port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def find_notebook(my_dir: Path, number: str, lang: str) -> str | None:
    """The path below `my_dir` of notebook `number` ("00"), with slashes; None: there is none."""
    folder = my_dir / "ko" if lang == "ko" else my_dir
    found = sorted(folder.glob(f"{number.zfill(2)}_*.ipynb"))
    return found[0].relative_to(my_dir).as_posix() if found else None


def browser():
    """The person's web browser, or None where only a text one would start."""
    graphical = sys.platform in ("win32", "darwin") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    try:
        return webbrowser.get() if graphical else None
    except webbrowser.Error:
        return None


def announce(port: int, address: str, opener) -> None:
    """Waits until the server answers, prints the address, and opens it."""
    while True:
        try:
            socket.create_connection((HOST, port), timeout=2).close()
            break
        except OSError:
            time.sleep(0.2)
    print(f"\nJupyterLab runs. Your notebooks lie in {paths.my_dir()}")
    print(f"Open: {address}")
    print("Stop: Ctrl-C", flush=True)
    if opener:
        opener.open(address)


def leave_out_news() -> None:
    """No question about Jupyter's news feed, which would also need the network."""
    config = Path(sys.prefix) / "etc" / "jupyter" / "labconfig" / "page_config.json"
    off = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
    paths.write_atomic(config, json.dumps(off) + "\n")


def serve(port: int, token: str) -> None:
    """JupyterLab in this process, until it is stopped."""
    from jupyterlab.labapp import LabApp

    leave_out_news()
    os.environ["JUPYTER_TOKEN"] = token
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"  # this environment's kernel before the user's
    settings = {
        "ServerApp.ip": HOST,
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.root_dir": paths.my_dir(),
        "ServerApp.base_url": "/",
        "ServerApp.open_browser": False,
        "ServerApp.answer_yes": True,  # Ctrl-C stops it without a question
        "ServerApp.log_level": "WARN",
        "LabApp.log_level": "WARN",
    }
    options = [f"--{name}={value}" for name, value in settings.items()]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.append("--allow-root")
    LabApp.launch_instance(options)


if __name__ == "__main__":
    make_safe()
    try:
        sys.exit(main(sys.argv[1:]))
    except SetupError as error:
        sys.exit(str(error))
