"""Chromium without a window, driven by its own protocol over a pipe: what a page says, asks for and lacks."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import pytest

Json = Any
LIMIT_S = 60.0
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--remote-debugging-pipe",
    # Whatever a page asks of others fails, and is told.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
_FORGETS = "try { localStorage.clear(); sessionStorage.clear(); } catch {}"
_LOADED = "Page.loadEventFired"


@dataclass
class Page:
    """A page in Chromium: `wrong` is every request that failed, error of the console, and exception."""

    _to: BinaryIO
    _from: BinaryIO
    _session: str = ""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _heard: list[Json] = field(default_factory=list)
    _waiting: bytes = b""

    @property
    def wrong(self) -> list[str]:
        """In the order in which it came."""
        return [said for said in map(_wrong, self._heard) if said]

    def open(self, address: str, width: int = 1280, *, dark: bool = False) -> None:
        """Load it anew, in a window of this width (px); what was wrong before is forgotten."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        # Another fragment of the same page alone would load nothing.
        self._go("about:blank")
        self._go(address)

    def _go(self, address: str) -> None:
        self._heard.clear()
        self.ask("Page.navigate", url=address)
        while not any(heard.get("method") == _LOADED for heard in self._heard):
            self._heard.append(self._next())

    def run(self, script: str) -> Json:
        """What a script comes to; a promise is waited for. Raises AssertionError where it throws."""
        said = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until a condition holds; it is looked at with each frame."""
        # The page gives up itself, so that the last word is what it shows.
        self.run(
            f"""new Promise((done, fail) => {{
              const end = performance.now() + {LIMIT_S * 1000};
              const look = () => {{
                if ({condition}) done(true);
                else if (performance.now() > end) fail(new Error(document.body.innerText.slice(0, 2000)));
                else setTimeout(look, 50);
              }};
              look();
            }})"""
        )

    def ask(self, method: str, **params: Json) -> Json:
        """One command of the protocol, and its answer."""
        number = next(self._numbers)
        told: Json = {"id": number, "method": method, "params": params}
        if self._session:
            told["sessionId"] = self._session
        self._to.write(json.dumps(told).encode() + b"\0")
        self._to.flush()
        while True:
            heard = self._next()
            if heard.get("id") == number:
                assert "error" not in heard, heard
                return heard["result"]
            self._heard.append(heard)

    def attach(self) -> None:
        """Take a tab of one's own, and listen to it."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")
        # What one test opened another one has never seen.
        self.ask("Page.addScriptToEvaluateOnNewDocument", source=_FORGETS)

    def _next(self) -> Json:
        while b"\0" not in self._waiting:
            read = os.read(self._from.fileno(), 1 << 20)
            assert read, "Chromium ended"
            self._waiting += read
        said, _, self._waiting = self._waiting.partition(b"\0")
        return json.loads(said)


def _wrong(heard: Json) -> str:
    method, told = heard.get("method"), heard.get("params", {})
    if method == "Network.loadingFailed":
        return f"a request failed: {told.get('errorText')} {told.get('blockedReason', '')}"
    if method == "Network.responseReceived" and told["response"]["status"] >= 400:
        return f"{told['response']['status']}: {told['response']['url']}"
    if method == "Runtime.exceptionThrown":
        return f"exception: {told['exceptionDetails']}"
    if method == "Runtime.consoleAPICalled" and told["type"] in ("error", "assert"):
        return f"console: {[each.get('value') or each.get('description') for each in told['args']]}"
    if method == "Log.entryAdded" and told["entry"]["level"] == "error":
        return f"log: {told['entry']['text']} {told['entry'].get('url', '')}"
    return ""


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[Page]:
    """A browser with its profile in a folder, and one page of it. Skips the test where there is none."""
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
                process.wait(LIMIT_S)
