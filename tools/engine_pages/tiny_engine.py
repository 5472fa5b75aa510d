"""A stand-in for an engine behind a gateway: answers on loopback at its own pace, streamed or not."""

import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "org/model"
TOKENS = 20


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def _answer(self, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """Models, and what routers ask of a new worker."""
        if "models" in self.path:
            self._answer({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "tiny"}]})
        else:
            self._answer({"status": "ok", "model_path": MODEL, "served_model_name": MODEL, "is_generation": True})

    def do_POST(self) -> None:
        """A chat completion of 20 tokens; the message is the seconds before each."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        pace = float(asked["messages"][-1]["content"])
        usage = {"prompt_tokens": 5, "completion_tokens": TOKENS, "total_tokens": 5 + TOKENS}
        common = {"id": "chatcmpl-1", "created": 1, "model": MODEL}
        if not asked.get("stream"):
            time.sleep(pace * TOKENS)
            message = {"role": "assistant", "content": "a " * TOKENS}
            choices = [{"index": 0, "message": message, "finish_reason": "length"}]
            self._answer({**common, "object": "chat.completion", "choices": choices, "usage": usage})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(TOKENS):
            time.sleep(pace)
            delta, reason = {"role": "assistant", "content": "a "}, "length" if number == TOKENS - 1 else None
            choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
            self._chunk(json.dumps({**common, "object": "chat.completion.chunk", "choices": choices}))
        self._chunk("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, data: str) -> None:
        body = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
        self.wfile.flush()


def server() -> ThreadingHTTPServer:
    """One on a free port of loopback; call `serve_forever` in a thread."""
    return ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
