"""A tiny OpenAI server in a thread: it answers with scripted streams, and keeps what it was asked.

The prompt says what becomes of a request: "refuse", "break", "error", "no done", "pairs", "silent",
"no usage", "abort", "garbage"; anything else gets its tokens one by one.
"""

import asyncio
import json
import threading
from contextlib import contextmanager

from aiohttp import web


class Fake:
    def __init__(self):
        self.bodies, self.headers = [], []
        self.refused, self.key, self.pages = set(), None, None
        self.now = self.most = 0  # requests under way
        self.gather = 1  # answers begin once so many are there
        self.url = ""

    @property
    def asked(self):
        """What came beside the trial."""
        return [body for body in self.bodies if body["max_tokens"] != 2]

    async def models(self, request):
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return refusal(401, "who are you?")
        return web.json_response({"object": "list", "data": [{"id": "first"}, {"id": "second"}]})

    async def metrics(self, request):
        if self.pages is None:
            raise web.HTTPNotFound
        return web.Response(text=self.pages.pop(0) if len(self.pages) > 1 else self.pages[0])

    async def generate(self, request):
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await self.answer(request, body)
        finally:
            self.now -= 1

    async def answer(self, request, body):
        for name in self.refused & {*body}:
            return refusal(400, f"{name} is not known")
        is_chat = "messages" in body
        prompt = body["messages"][0]["content"] if is_chat else body["prompt"]
        if prompt == "refuse":
            return refusal(429, "the queue is full")
        while body["max_tokens"] != 2 and self.most < self.gather:
            await asyncio.sleep(0.001)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for line in events(prompt, body, is_chat):
            await response.write(line)
        if prompt == "break":
            request.transport.abort()
        return response


def events(prompt, body, is_chat):
    def event(content):
        return b"data: " + json.dumps(content).encode() + b"\r\n\r\n"

    def choice(text, finish=None):
        found = {"index": 0, "finish_reason": finish}
        return found | ({"delta": {"content": text}} if is_chat else {"text": text})

    count = body["max_tokens"]
    if is_chat:
        yield event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    for _ in range(0 if prompt == "silent" else count // 2 if prompt == "pairs" else count):
        yield event({"id": "x", "choices": [choice("word ")], "usage": None})
        if prompt in ("break", "error", "garbage"):
            break
    if prompt == "break":
        return
    if prompt == "garbage":
        yield b"data: {nonsense\n\n"
    if prompt == "error":
        yield event({"error": {"message": "the engine died", "type": "internal"}})
        return
    yield b": a comment\n\n"
    yield event({"choices": [choice("", "abort" if prompt == "abort" else "length")]})
    usage = {"prompt_tokens": 11, "completion_tokens": count}
    if prompt != "no usage" and body.get("stream_options") == {"include_usage": True}:
        yield event({"choices": [], "usage": usage})
    if prompt != "no done":
        yield b"data: [DONE]\n\n"


def refusal(status, message):
    error = {"message": message, "type": "x", "param": None, "code": None}
    return web.json_response({"error": error}, status=status)


@contextmanager
def serving():
    """A fake that listens on a free port while the block runs."""
    fake, loop, is_up = Fake(), asyncio.new_event_loop(), threading.Event()

    async def start():
        app = web.Application()
        app.router.add_get("/v1/models", fake.models)
        app.router.add_get("/metrics", fake.metrics)
        for path in ("/v1/chat/completions", "/v1/completions"):
            app.router.add_post(path, fake.generate)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        fake.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
        is_up.set()
        return runner

    def live():
        runner = loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=live, daemon=True)
    thread.start()
    assert is_up.wait(10)
    try:
        yield fake
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
