"""Moments that no watch sees: messages of witnesses on nodes, and the ends of machines.

A witness is a pod that writes down what happens to it, or a unit's journal. Its messages are in the history
once they are collected; from then on their absence counts too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodeproof.checks.shapes import Computed, Occurrence, Recorded, Shape, module_of, stored_as
from nodeproof.model.history import Entry, History
from nodeproof.model.judgment import Moment, words_in
from nodeproof.model.pod_log import BEAT_S, EXITS, HOOK_BEGAN, HOOK_ENDED, SIGTERM, lost_of
from nodeproof.model.slack import Span

_OF_SOURCES = ("told", "last-told")
"""Moments that sources report."""
_OF_PODS = (SIGTERM, HOOK_BEGAN, HOOK_ENDED)
SILENCE_TIMEOUT_S = 25 * BEAT_S
"""Longest silence (s) of a living witness: a loaded node may not let it run for a while."""


def sigterm(pod: str) -> Moment:
    """Match the SIGTERM that a witness pod receives."""
    return _reported(pod, SIGTERM)


def pre_stop_began(pod: str) -> Moment:
    """Match the start of a witness pod's preStop hook."""
    return _reported(pod, HOOK_BEGAN)


def pre_stop_ended(pod: str) -> Moment:
    """Match the end of a witness pod's preStop hook."""
    return _reported(pod, HOOK_ENDED)


def any_sign(pod: str) -> Moment:
    """Match any message of a witness pod."""
    return _reported(pod, "")


@stored_as("last-told", pod="by")
def last_sign(pod: str) -> Shape:
    """Match the last message of a witness pod: its end, to within `BEAT_S`, unless it was alive when read."""

    def last(history: History, since_t: float) -> Occurrence | None:
        messages = _messages(history, pod)
        return Occurrence(messages[-1].t) if messages and messages[-1].t >= since_t else None

    return Computed((), last)


def logged(node: str, unit: str, text: str) -> Moment:
    """Match a line with this text in the journal of a unit, or of systemd about it."""
    return _reported(journal(node, unit), text)


@stored_as("machine-ended")
def machine_ended(node: str) -> Shape:
    """Match the end of a node's machine, by itself or by a power cut."""
    off = {"node": node, "step": "powered-off"}
    return Recorded((("component", {"name": f"node-{node}"}), ("machine", off)))


@stored_as("machine-began")
def booted(node: str) -> Shape:
    """Match the last boot of a node's machine, or its last start from a snapshot."""

    def last(history: History, since_t: float) -> Occurrence | None:
        # A guest with an unusable snapshot boots after the attempt to restore it.
        steps = (entry for entry in history.of_kind("machine") if entry.data["node"] == node)
        start_times = [entry.t for entry in steps if entry.data["step"] in ("booted", "restored")]
        return Occurrence(start_times[-1]) if start_times and start_times[-1] >= since_t else None

    return Computed((), last)


def kubelet_restarted(node: str) -> Moment:
    """Match the restart of a node's kubelet by the scenario."""
    return _machine_step(node, "kubelet-restarted")


@stored_as("machine-step")
def _machine_step(node: str, step: str) -> Shape:
    return Recorded((("machine", {"node": node, "step": step}),))


@stored_as("heard")
def _heard(by: str) -> Shape:
    """Match the collection of a witness's messages."""
    return Recorded((("heard", {"by": by}),))


@stored_as("told")
def _reported(by: str, what: str) -> Shape:
    return Recorded((("told", {"by": by, "what": {"$contains": what}}),))


def journal(node: str, unit: str) -> str:
    """Return the witness name of a unit's journal."""
    return f"{node}/{unit}"


def is_witnessed(moment: Moment) -> bool:
    """Return whether a moment is defined in this module."""
    return module_of(moment) == __name__


def not_collected(history: History, moment: Moment, until_t: float) -> str:
    """Return why the history may lack a moment that occurred by `until_t` (s), or an empty string."""
    if "by" not in moment.args:
        return (
            ""
            if history.ended_t >= until_t
            else f"the recording ended {until_t - history.ended_t:.1f} s early"
        )
    readings = [entry for entry in history.of_kind("heard") if entry.data["by"] == moment.args["by"]]
    if not readings:
        return f"{moment.args['by']} was not read"
    early_s = until_t - readings[-1].t
    return f"{moment.args['by']} was read {early_s:.1f} s too early" if early_s > 0 else ""


def lost(history: History, moment: Moment, time: Span) -> str:
    """Return why a source may have reported a moment that the history lacks, or an empty string."""
    if moment.name not in _OF_SOURCES:
        return ""
    readings = [entry for entry in history.of_kind("heard") if entry.data["by"] == moment.args["by"]]
    for loss in lost_of(readings[-1].data.get("unsure")) if readings else ():
        if loss.touches(time):
            return loss.why
    is_last = moment.name == "last-told" and readings
    return _lived(history, str(moment.args["by"]), readings[-1].t) if is_last else ""


def _lived(history: History, by: str, read_t: float) -> str:
    """Return that a witness may have been alive when it was read, or an empty string.

    A living witness writes a message every `BEAT_S`, and one when it exits.
    """
    messages = _messages(history, by)
    has_ended = not messages or messages[-1].data["what"] == EXITS or read_t - messages[-1].t > BEAT_S
    return "" if has_ended else f"{by} may have been alive when it was read"


def not_running(history: History, moment: Moment, t: float) -> str:
    """Return why a witness pod could not be terminated after a time (s), or an empty string."""
    if moment.name != "told" or moment.args["what"] not in _OF_PODS or "/" in moment.args["by"]:
        return ""
    messages = _messages(history, str(moment.args["by"]))
    before = [message for message in messages if message.t <= t]
    if not before:
        return "it had not started yet"
    has_ended = before[-1].data["what"] == EXITS or messages[-1].t < t - SILENCE_TIMEOUT_S
    return "it had already ended" if has_ended else ""


def last_message(history: History, by: str) -> str:
    """Summarize the last message of a witness on one line."""
    messages = _messages(history, by)
    if not messages:
        return f"{by}: no messages"
    last, after_s = messages[-1].data["what"], messages[-1].t - messages[0].t
    return f"{by}: {len(messages)} messages, last {last!r}, {after_s:.1f} s after the first"


def _messages(history: History, by: str) -> list[Entry]:
    return [entry for entry in history.of_kind("told") if entry.data["by"] == by]


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Moment)  # noqa: PLE0605
