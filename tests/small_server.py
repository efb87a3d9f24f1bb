"""Small HTTP servers on loopback, and one whose next answers a test chooses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_POLL_S = 0.02
"""How often the server looks whether it is to end (s)."""


class Quiet(BaseHTTPRequestHandler):
    """A handler that keeps the output of a test short."""

    def log_message(self, *_arguments: object) -> None:
        """Print nothing."""


@contextmanager
def served(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve until the context ends; yield the URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


class Page:
    """The answer to each request, after a delay that `answer_now` ends; and the paths requested so far."""

    def __init__(self) -> None:
        self.status, self.body, self.location = 200, "", ""
        self.paths: list[str] = []
        self.answer_now = threading.Event()
        self.answer_now.set()
        self.url = ""


@contextmanager
def serving(page: Page) -> Iterator[Page]:
    """Serve a page at `page.url` until the context ends."""

    class Handler(Quiet):
        def do_GET(self) -> None:
            page.paths.append(self.path)
            page.answer_now.wait(60)
            self.send_response(page.status)
            if page.location:
                self.send_header("Location", page.location)
            self.end_headers()
            self.wfile.write(page.body.encode())

    with served(Handler) as page.url:
        try:
            yield page
        finally:
            page.answer_now.set()
