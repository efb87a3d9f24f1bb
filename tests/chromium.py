"""Headless Chromium, driven by its protocol over a pipe: results, requests and errors of a page."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, product
from pathlib import Path
from typing import BinaryIO

import pytest

from nodeproof.model.pattern import Json

TIMEOUT_S = 60.0
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--remote-debugging-pipe",
    # External requests of a page fail and are reported.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
_FORGETS = "try { localStorage.clear(); sessionStorage.clear(); } catch {}"
_LOADED = "Page.loadEventFired"
_WITHOUT_TRANSITIONS = """document.head.append(Object.assign(document.createElement("style"),
  {textContent: "*, ::before, ::after {transition: none !important}"}))"""
_DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))).then(() => true)"
_OUTCOME = """axe.run(document, {resultTypes: ["violations"]}).then(outcome => ({
  violations: outcome.violations.map(violation => [violation.id, violation.nodes.map(node => node.html)]),
  passes: outcome.passes.length,
}))"""


@dataclass
class Page:
    """A page in Chromium: `wrong` lists failed requests, console errors and exceptions."""

    _to: BinaryIO
    _from: BinaryIO
    _session: str = ""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _events: list[Json] = field(default_factory=list)
    _waiting: bytes = b""

    @property
    def wrong(self) -> list[str]:
        """Failed requests, errors and exceptions, in order."""
        return [problem for problem in map(_wrong, self._events) if problem]

    def open(self, address: str, width: int = 1280, *, dark: bool = False) -> None:
        """Load the page in a window of this width (px); earlier errors are forgotten."""
        self.show(width, dark=dark)
        # Only another fragment of the same page would load nothing.
        self._go("about:blank")
        self._go(address)

    def show(self, width: int, *, dark: bool) -> None:
        """Set the width (px) and the colour scheme of the window; the page stays loaded."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def _go(self, address: str) -> None:
        self._events.clear()
        self.ask("Page.navigate", url=address)
        while not any(event.get("method") == _LOADED for event in self._events):
            self._events.append(self._next())

    def run(self, script: str) -> Json:
        """Return the result of a script, awaiting promises. Raises AssertionError if it throws."""
        reply = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until a condition holds; it is checked on each frame."""
        # The page itself times out, so that the result is its last state.
        self.run(
            f"""new Promise((done, fail) => {{
              const end = performance.now() + {TIMEOUT_S * 1000};
              const look = () => {{
                if ({condition}) done(true);
                else if (performance.now() > end) fail(new Error(document.body.innerText.slice(0, 2000)));
                else setTimeout(look, 50);
              }};
              look();
            }})"""
        )

    def ask(self, method: str, **params: Json) -> Json:
        """Send one command of the protocol, and return its answer."""
        number = next(self._numbers)
        request: Json = {"id": number, "method": method, "params": params}
        if self._session:
            request["sessionId"] = self._session
        self._to.write(json.dumps(request).encode() + b"\0")
        self._to.flush()
        while True:
            event = self._next()
            if event.get("id") == number:
                assert "error" not in event, event
                return event["result"]
            self._events.append(event)

    def attach(self) -> None:
        """Open a tab, and listen to its events."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")
        # Tests do not share tabs.
        self.ask("Page.addScriptToEvaluateOnNewDocument", source=_FORGETS)

    def _next(self) -> Json:
        while b"\0" not in self._waiting:
            read = os.read(self._from.fileno(), 1 << 20)
            assert read, "Chromium ended"
            self._waiting += read
        text, _, self._waiting = self._waiting.partition(b"\0")
        return json.loads(text)


def _wrong(event: Json) -> str:
    method, params = event.get("method"), event.get("params", {})
    if method == "Network.loadingFailed":
        return f"a request failed: {params.get('errorText')} {params.get('blockedReason', '')}"
    if method == "Network.responseReceived" and params["response"]["status"] >= 400:
        return f"{params['response']['status']}: {params['response']['url']}"
    if method == "Runtime.exceptionThrown":
        return f"exception: {params['exceptionDetails']}"
    if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
        return f"console: {[arg.get('value') or arg.get('description') for arg in params['args']]}"
    if method == "Log.entryAdded" and params["entry"]["level"] == "error":
        return f"log: {params['entry']['text']} {params['entry'].get('url', '')}"
    return ""


def violations(browser: Page, page: Path, axe: str, min_passes: int) -> list[Json]:
    """Return what axe-core finds in a page, or its width where it does not fit, at each width and scheme.

    At least `min_passes` rules must apply to the page and be met.
    """
    browser.open(page.as_uri())
    browser.run(axe)
    browser.run(_WITHOUT_TRANSITIONS)
    problems: list[Json] = []
    for width, dark in product((1280, 400), (False, True)):
        browser.show(width, dark=dark)
        browser.run(_DRAWN)
        outcome = browser.run(_OUTCOME)
        assert outcome["passes"] >= min_passes
        problems += [(width, dark, *violation) for violation in outcome["violations"]]
        if (needed := browser.run("document.documentElement.scrollWidth")) > width:
            problems.append((width, dark, f"needs {needed} px"))
    return problems


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[Page]:
    """Start a browser with its profile in a folder, and one page. Skips the test without Chromium."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium on PATH: apt-get install chromium")
    (its_in, ours_out), (ours_in, its_out) = os.pipe(), os.pipe()
    # It reads from descriptor 3 and writes to 4, so a shell puts them there.
    script = f'exec "$@" 3<&{its_in} 4>&{its_out}'
    own = (program, *_OPTIONS, f"--user-data-dir={folder / 'profile'}")
    with subprocess.Popen(
        ("bash", "-c", script, "bash", *own), pass_fds=(its_in, its_out), stderr=subprocess.DEVNULL
    ) as process:
        os.close(its_in)
        os.close(its_out)
        with os.fdopen(ours_out, "wb") as to, os.fdopen(ours_in, "rb", buffering=0) as come:
            page = Page(to, come)
            try:
                page.attach()
                yield page
            finally:
                with contextlib.suppress(OSError, AssertionError):
                    page._session = ""
                    page.ask("Browser.close")
                process.wait(TIMEOUT_S)
