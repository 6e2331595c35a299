"""The page of a running server: chat, load, the live engine, cancelling; in a headless browser."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from labkit import paths

PATIENCE_S = 180  # how long a slow machine may take; no test is about time
HOST = "127.0.0.1"
NUM_BLOCKS = 64
COLOURS_IN_MAP = """canvas => {
    const free = getComputedStyle(document.body).getPropertyValue('--free')
    const probe = document.createElement('canvas').getContext('2d')
    probe.fillStyle = free
    probe.fillRect(0, 0, 1, 1)
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data
    const none = probe.getImageData(0, 0, 1, 1).data.slice(0, 3).join()
    const found = new Set()
    for (let i = 0; i < pixels.length; i += 4) {
        const colour = pixels.slice(i, i + 3).join()
        if (pixels[i + 3] === 255 && colour !== none) found.add(colour)
    }
    return found.size
}"""
LENGTHS_OF_ANSWER = """() => {
    window.lengths = new Set()
    const note = () => {
        const answer = document.querySelector('article.assistant .text')
        if (answer) window.lengths.add(answer.textContent.length)
    }
    new MutationObserver(note).observe(document.querySelector('#chat-log'),
        { childList: true, subtree: true, characterData: true })
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a server with `tiny`, four requests at once and few blocks."""
    port = free_port()
    command = [sys.executable, "-m", "labkit.serving", "--model", "tiny", "--port", str(port)]
    command += ["--max-num-seqs", "4", "--num-blocks", str(NUM_BLOCKS), "--block-size", "16"]
    log = tmp_path_factory.mktemp("server") / "server.log"
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command, cwd=paths.repo_root(), stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
    try:
        address = f"http://{HOST}:{port}"
        wait_until_ready(address, process, log)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture
def page(browser, server, request):
    """The page, connected. At the end: a picture, no error on its console, no foreign request."""
    opened = browser.new_page(viewport={"width": 1400, "height": 900})
    opened.set_default_timeout(1000 * PATIENCE_S)
    errors, addresses = [], []
    opened.on("console", lambda said: is_error(said) and errors.append(said.text))
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("request", lambda sent: addresses.append(sent.url))
    try:
        opened.goto(server)
        opened.locator("body[data-status=ready]").wait_for()
        yield opened
    finally:
        opened.screenshot(path=picture(request.node.name))
        opened.close()
    assert errors == []
    assert [address for address in addresses if not address.startswith(f"{server}/")] == []


def test_page_shows_what_the_server_runs(page):
    assert page.locator("#status").inner_text() == "ready"
    facts = page.locator("#facts").inner_text()
    assert re.search(r"model\s+tiny", facts)
    assert re.search(r"dtype\s+float32", facts)
    assert page.locator("#block-map").get_attribute("data-blocks") == str(NUM_BLOCKS)


def test_answer_of_the_chat_is_streamed_and_timed(page):
    page.evaluate(LENGTHS_OF_ANSWER)
    page.locator("#chat-settings summary").click()
    page.get_by_label("Max tokens").fill("40")
    page.get_by_label("Message", exact=True).fill("안녕 🙂 <b>bold</b>")
    page.keyboard.press("Enter")

    page.locator("article.assistant:not([aria-busy]) .text").wait_for()
    assert page.locator("article.user .text").inner_text() == "안녕 🙂 <b>bold</b>"
    assert page.locator("article .error").count() == 0
    assert page.evaluate("window.lengths.size") > 2  # it grew piece by piece
    times = page.locator("article.assistant .times").inner_text()
    assert re.search(r"^TTFT [\d.]+ m?s · ITL [\d.]+ m?s mean · \d+ tokens", times), times


def test_error_of_the_server_is_told_in_its_words(page):
    page.get_by_label("Message", exact=True).fill("long " * 200)  # 1000 tokens, 512 fit
    with page.expect_response("**/v1/chat/completions") as refused:
        page.get_by_role("button", name="Send").click()
    told = page.locator("article.assistant .error").inner_text()

    assert told == refused.value.json()["error"]["message"]
    assert "512" in told


def test_load_fills_the_block_map_and_the_table(page):
    slide(page, "Requests per second", 10)
    slide(page, "Output tokens", 200)
    page.get_by_role("button", name="Start").click()
    until(page, "labkit.state.running > 0 && labkit.state.kv_usage > 0")
    until(page, "document.querySelector('#block-map').dataset.held > 0")
    page.locator("#request-rows tr[data-state=running] .swatch").first.wait_for()
    until(page, f"({COLOURS_IN_MAP})(document.querySelector('#block-map')) > 1")
    until(page, "labkit.traffic.counts.finished >= 5")

    page.screenshot(path=picture("page_under_load"))
    page.get_by_role("button", name="Stop").click()
    until(page, "labkit.traffic.inFlight.size === 0")
    counts = page.evaluate("labkit.traffic.counts")
    assert counts["failed"] == counts["refused"] == counts["cancelled"] == 0
    assert counts["sent"] == counts["finished"]
    assert page.locator("[data-class=chat][data-count=p50]").inner_text().endswith("s")


def test_block_map_is_read_with_the_keys(page, server):
    client = LongRequest(server, label="held")
    client.start()
    until(page, "document.querySelector('#block-map').dataset.held > 0")
    held = page.evaluate("labkit.state.requests[0].block_ids[0]")
    page.locator("#block-map").focus()
    for _ in range(held + 1):  # the first press shows block 0
        page.keyboard.press("ArrowRight")

    page.get_by_text(re.compile(rf"^Block {held}: ")).wait_for()
    page.locator("#request-rows tr.chosen", has_text="held").wait_for()
    page.locator("#request-rows").get_by_role("button").first.click()
    client.join()


def test_request_is_cancelled_in_the_table(page, server):
    client = LongRequest(server, label="too long")
    client.start()
    row = page.locator("#request-rows tr", has_text="too long")
    row.get_by_role("button", name="Cancel").click()
    row.wait_for(state="detached")

    client.join()
    assert client.status == 409
    assert page.locator("#requests-note").inner_text().endswith("is cancelled")


def test_page_fits_a_phone(page):
    page.set_viewport_size({"width": 400, "height": 800})
    page.get_by_role("heading", name="Requests", exact=True).first.scroll_into_view_if_needed()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


# ---- the server, and who calls it beside the page


class LongRequest(threading.Thread):
    """A client whose request takes long: many prompts, each continued to the end."""

    def __init__(self, server: str, label: str):
        super().__init__(daemon=True)
        self.server, self.label, self.status = server, label, None

    def run(self) -> None:
        prompts = [[65 + place % 26] * 40 for place in range(250)]
        body = {"prompt": prompts, "max_tokens": 400, "ignore_eos": True}
        asked = urllib.request.Request(
            f"{self.server}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "X-Request-Id": self.label},
        )
        try:
            with urllib.request.urlopen(asked) as answer:
                self.status = answer.status
        except urllib.error.HTTPError as error:
            self.status = error.code


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def wait_until_ready(address: str, process: subprocess.Popen, log: Path) -> None:
    last = time.monotonic() + PATIENCE_S
    while time.monotonic() < last and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/health") as answer:
                if answer.status == 200:
                    return
        except OSError:  # not there yet, or 503
            time.sleep(0.2)
    pytest.fail(f"the server did not become ready:\n{log.read_text(encoding='utf-8')}")


def is_error(said) -> bool:
    """A browser notes every status of 400 and above; those of the API may be meant so."""
    return said.type == "error" and "/v1/" not in said.location["url"]


def until(page, condition: str) -> None:
    """Asks again and again: waiting in the page itself needs `eval`, which its policy forbids."""
    last = time.monotonic() + PATIENCE_S
    while not page.evaluate(condition):
        if time.monotonic() > last:
            pytest.fail(f"this did not become true: {condition}")
        page.wait_for_timeout(50)


def slide(page, label: str, value: int) -> None:
    page.get_by_label(label).fill(str(value))


def picture(name: str) -> Path:
    folder = Path(os.environ.get("LABKIT_ARTIFACTS") or paths.repo_root() / "artifacts")
    return folder / "browser" / f"{name}.png"
