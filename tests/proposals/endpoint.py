"""A scripted endpoint on the loopback interface that speaks just enough of OpenAI's chat protocol, well or badly."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Script = Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]


@dataclass
class Endpoint:
    """Answers the n-th request with the n-th script, the last one for all that follow."""

    scripts: list[Script]
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def script_for(self, number: int) -> Script:
        return self.scripts[min(number, len(self.scripts) - 1)]


def completion(text: str | None, finish: str = "stop", **message: Any) -> dict[str, Any]:
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": text, **message},
            }
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }


def says(text: str | None, finish: str = "stop", **message: Any) -> Script:
    return sends(json.dumps(completion(text, finish, **message)).encode())


def sends(body: bytes, status: int = 200, **headers: str) -> Script:
    def script(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        for name, value in {"Content_Type": "application/json", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return script


def cuts_off(body: bytes) -> Script:
    """Promises more bytes than it sends."""

    def script(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body) + 1000))
        handler.end_headers()
        handler.wfile.write(body)
        handler.close_connection = True

    return script


def streams(text: str, finish: str | None = "stop", end: bytes = b"data: [DONE]\n\n") -> Script:
    """Server-sent events, a few characters each; `finish` None ends without saying why."""

    def chunk(choices: list[dict[str, Any]], **more: Any) -> bytes:
        event = {"id": "1", "object": "chat.completion.chunk", "choices": choices, **more}
        return b"data: " + json.dumps(event).encode() + b"\n\n"

    pieces = [text[at : at + 40] for at in range(0, len(text), 40)]
    body = [chunk([{"index": 0, "delta": {"content": piece}}]) for piece in pieces]
    if finish is not None and end.startswith(b"data: [DONE]"):
        body.append(chunk([{"index": 0, "delta": {}, "finish_reason": finish}]))
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    body += [chunk([], usage=usage), end]
    return sends(b"".join(body), Content_Type="text/event-stream")


def drips(pause_s: float, count: int) -> Script:
    """One byte at a time, each soon enough for a timeout of single reads."""

    def script(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(count))
        handler.end_headers()
        for _ in range(count):
            try:
                handler.wfile.write(b" ")
                handler.wfile.flush()
            except OSError:
                return
            threading.Event().wait(pause_s)

    return script


@contextmanager
def serve(*scripts: Script) -> Iterator[Endpoint]:
    endpoint = Endpoint(list(scripts))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            request = json.loads(self.rfile.read(length))
            number = len(endpoint.requests)
            endpoint.requests.append({"path": self.path, **request})
            endpoint.headers.append({k.lower(): v for k, v in self.headers.items()})
            endpoint.script_for(number)(self, request)

        def do_GET(self) -> None:
            endpoint.requests.append({"path": self.path})
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02), daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
