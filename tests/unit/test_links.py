"""The weekly check of external links."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from infra.links import failure, links


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/page" else 404)
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    """Serve one page on loopback."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


def test_link_is_found_once_with_all_its_pages() -> None:
    text = "[A](https://a.dev/x#part) and <https://a.dev/x#part>, `http://HOST/y`, http://b.example/z"
    assert links({"one.md": text, "two.md": text}) == {"https://a.dev/x#part": ["one.md", "two.md"]}


def test_only_a_link_that_is_not_served_fails(server: str) -> None:
    assert failure(f"{server}/page", retries=0) == ""
    assert "404" in failure(f"{server}/removed", retries=1, pause_s=0)


def test_closed_port_fails() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as http:
        port = http.server_port
    assert "refused" in failure(f"http://127.0.0.1:{port}/", retries=0)
