"""When Chromium, without a window, paints something of a page, and something of its content."""

from __future__ import annotations

import http.server
import re
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from queue import Queue
from urllib.parse import parse_qsl, urlsplit

import pytest

from nodeproof import proc

LIMIT_S = 120.0
# The page tells it itself, to whoever opened it: nothing that is asked from outside comes in between.
_PROBE = """<script>
new PerformanceObserver((list) => {
  for (const entry of list.getEntries())
    new Image().src = `http://127.0.0.1:%d/?name=${entry.name}&ms=${entry.startTime}`;
}).observe({type: "paint", buffered: true});
</script>"""
_HEAD = re.compile(r"<head[^>]*>")
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
_PAINTS = ("first-paint", "first-contentful-paint")


def first_paints_s(page: Path, folder: Path) -> Mapping[str, float]:
    """Seconds from the navigation to a page's first paint, and to that of its content, opened from disk.

    A copy is opened, in `folder`, that says so, and may. Skips the test where there is no Chromium.
    """
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium on PATH: apt-get install chromium")
    heard: Queue[tuple[str, float]] = Queue()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _listening(heard)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        probe = _PROBE % server.server_address[1]
        copy = folder / "painted.html"
        told = _POLICY.sub("", page.read_text(), count=1)
        copy.write_text(_HEAD.sub(lambda found: found[0] + probe, told, count=1))
        options = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}")
        argv = (program, *options, "--remote-debugging-port=0", copy.as_uri())
        browser = proc.start(argv, log=folder / "chromium.log", cwd=folder, own_session=True)
        try:
            return dict(heard.get(timeout=LIMIT_S) for _paint in _PAINTS)
        finally:
            browser.terminate()
            browser.wait(LIMIT_S)
            server.shutdown()


def _listening(heard: Queue[tuple[str, float]]) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told = dict(parse_qsl(urlsplit(self.path).query))
            self.send_response(204)
            self.end_headers()
            heard.put((told["name"], float(told["ms"]) / 1000))

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Handler
