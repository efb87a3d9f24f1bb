"""Questions to programs beside a cluster: HTTP requests and commands with a time limit."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import urllib3

from nodeproof import proc
from nodeproof.model.pattern import Json
from nodeproof.model.problem import OutsideError

_MOST_BYTES = 10_000_000
_LONGEST = 300
"""Characters of an error or an output that a reason quotes."""


class NoAnswer(OutsideError):
    """A program did not answer, or not as expected."""


def get(url: str, timeout_s: float) -> bytes:
    """Return the body of a page; a redirect is not followed. Raises NoAnswer unless the status is 2xx."""
    try:
        with urllib3.PoolManager(retries=False) as pool:
            timeout = urllib3.Timeout(total=timeout_s)
            page = pool.request("GET", url, redirect=False, timeout=timeout, preload_content=False)
            body: bytes = page.read(_MOST_BYTES)
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        raise NoAnswer(f"no answer: {_short(str(error).rpartition(': ')[2])}") from error
    if not 200 <= page.status < 300:
        raise NoAnswer(f"HTTP {page.status}")
    return body


def get_json(url: str, query: Mapping[str, str], timeout_s: float) -> Json:
    """Return the content of a page of JSON. Raises NoAnswer."""
    body = get(f"{url}?{urlencode(query)}" if query else url, timeout_s)
    try:
        return json.loads(body)
    except ValueError as error:
        raise NoAnswer(f"no JSON: {_short(body.decode(errors='replace'))}") from error


def get_prometheus(url: str, query: Mapping[str, str], timeout_s: float) -> Json:
    """Return the answer of Prometheus' API. Raises NoAnswer if it failed or is partial.

    Source: prometheus.io/docs/prometheus/latest/querying/api, "Format overview": `warnings` name what a
    result lacks.
    """
    answer = get_json(url, query, timeout_s)
    if not isinstance(answer, dict) or answer.get("status") != "success":
        raise NoAnswer("the answer is no success of Prometheus")
    if answer.get("warnings"):
        raise NoAnswer(f"the answer is partial: {_short(str(answer['warnings'][0]))}")
    return answer


def run(argv: Sequence[str], folder: Path, timeout_s: float) -> None:
    """Run a program in a folder. Raises NoAnswer if its exit code is not 0."""
    try:
        proc.run(argv, timeout_s=timeout_s, cwd=folder)
    except proc.CommandFailed as error:
        code = "timed out" if error.status is None else f"exit code {error.status}"
        raise NoAnswer(f"{code}: {_short(error.output)}".removesuffix(": ")) from error


def ask_all(questions: Mapping[str, Callable[[], str]], timeout_s: float) -> list[str]:
    """Ask all questions at the same time, and return the non-empty answers, each with its name.

    One that raises an exception, or has not answered after `timeout_s`, counts as answered with that: a
    server that sends a byte from time to time must not hold up the others.
    """
    answers: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    for name, question in questions.items():
        threading.Thread(target=partial(_answer, name, question, answers), daemon=True).start()
    open_names, reasons = dict.fromkeys(questions), list[str]()
    deadline_t = time.monotonic() + timeout_s
    while open_names:
        try:
            name, answer = answers.get(timeout=max(0.0, deadline_t - time.monotonic()))
        except queue.Empty:
            return [*reasons, *(f"{name}: no answer within {timeout_s:g} s" for name in open_names)]
        del open_names[name]
        reasons += [f"{name}: {answer}"] if answer else []
    return reasons


def _answer(name: str, question: Callable[[], str], answers: queue.SimpleQueue[tuple[str, str]]) -> None:
    try:
        answers.put((name, question()))
    except Exception as error:  # whatever fails, it is no answer
        answers.put((name, str(error) or repr(error)))


def _short(text: str) -> str:
    """Return text from elsewhere as a part of one line."""
    return " ".join(text.split())[:_LONGEST]
