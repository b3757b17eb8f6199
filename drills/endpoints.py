"""Servers on loopback that a drill runs: a plain one, and a model that answers as the drill says."""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """An HTTP server on loopback. `answer(request)` gets the handler, whose `body` are the bytes that came."""

    def __init__(self, answer):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                self.body = self.rfile.read(int(self.headers.get("content-length") or 0))
                try:
                    answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True  # the client was killed

            do_GET = do_POST = handle_any

            def log_message(self, *_):
                pass

            def reply(self, status, value=None, headers=()):
                data = b"" if value is None else json.dumps(value).encode()
                self.send_response(status)
                for name, text in (("content-type", "application/json"), ("content-length", str(len(data))), *headers):
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(data)

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, *_):
                if not issubclass(sys.exc_info()[0], ConnectionError):  # a killed client is expected
                    super().handle_error(*_)

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class Model(Server):
    """A model that speaks chat completions as a stream. `decide(texts, request)` gets the texts of all messages, and returns a step:
    `say`, `call` (a list of tool and arguments), `think`, `chunk` (characters of a piece), `pause` (seconds between pieces), `usage`
    (tokens in and out, else a token for four bytes), `cut` (pieces after which the connection breaks), `status` (of an error
    instead). `ledger` has each request with its step."""

    def __init__(self, decide):
        self.decide, self.ledger = decide, []
        super().__init__(self.answer)

    def answer(self, http_request):
        if http_request.command == "GET":
            return http_request.reply(200, {"data": []})
        request = json.loads(http_request.body)
        texts = [plain(message.get("content")) for message in request["messages"]]
        entry = {"request": request, "texts": texts, "done": False}
        self.ledger.append(entry)
        step = entry["step"] = self.decide(texts, request)
        step.setdefault("usage", (len(http_request.body) // 4, len(step.get("say", "")) // 4 + 10))
        if "status" in step:
            return http_request.reply(step["status"], {"error": {"message": "the drill refuses this"}})
        http_request.send_response(200)
        http_request.send_header("content-type", "text/event-stream")
        http_request.send_header("connection", "close")
        http_request.end_headers()
        for number, piece in enumerate(self.pieces(step, len(self.ledger))):
            if number == step.get("cut"):
                http_request.close_connection = True
                return http_request.connection.shutdown(2)
            http_request.wfile.write(f"data: {piece if isinstance(piece, str) else json.dumps(piece)}\n\n".encode())
            http_request.wfile.flush()
            time.sleep(step.get("pause", 0))
        entry["done"] = True
        http_request.close_connection = True

    @staticmethod
    def pieces(step, number):
        def chunk(delta, finish=None):
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return {"id": f"c{number}", "object": "chat.completion.chunk", "model": "m", "created": 1, "choices": [choice]}

        yield chunk({"role": "assistant"})
        if step.get("think"):
            yield chunk({"reasoning_content": step["think"]})
        say, size = step.get("say", ""), step.get("chunk") or 1 << 20
        for at in range(0, len(say), size):
            yield chunk({"content": say[at : at + size]})
        for index, (tool, arguments) in enumerate(step.get("call", [])):
            function = {"name": tool, "arguments": json.dumps(arguments)}
            yield chunk({"tool_calls": [{"index": index, "id": f"call_{number}_{index}", "type": "function", "function": function}]})
        yield chunk({}, "tool_calls" if step.get("call") else "stop")
        read, written = step["usage"]
        usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        yield {**chunk({}), "choices": [], "usage": usage}
        yield "[DONE]"

    def config(self, price=""):
        """The section of the provider, and of its model `m`."""
        return (
            f'model = "mock/m"\n[providers.mock]\nbase_url = "{self.url}/v1"\nwire = "chat_completions"\ncredential = "env:MOCK"\n'
            f'[models."mock/m"]\nwindow = 32000\nmax_output = 2000\nimages = true\n{price}\n'
            '[retry]\nfirst_pause = "10ms"\nlongest_pause = "100ms"\n'
        )


def plain(content):
    """The text of a message's content."""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""
