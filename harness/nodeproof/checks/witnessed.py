"""Moments that no watch sees: what witnesses on the nodes told, and the ends of machines.

A witness is a pod that writes down what happens to it, or a unit's journal. What it told is in the history
once somebody read it; from then on its silence counts too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nodeproof.checks.occurrence import Args, Occurrence
from nodeproof.checks.shapes import Computed, Said, Shape
from nodeproof.model.history import Entry, History
from nodeproof.model.judgment import Moment
from nodeproof.model.slack import Span
from nodeproof.model.testimony import BEAT_S, EXITS, HOOK_BEGAN, HOOK_ENDED, SIGTERM, lost_of

_OF_SOURCES = ("told", "last-told")
"""The moments that sources tell."""


def sigterm(pod: str) -> Moment:
    """A witness pod gets SIGTERM."""
    return _told(pod, SIGTERM)


def pre_stop_began(pod: str) -> Moment:
    """A witness pod's preStop hook begins."""
    return _told(pod, HOOK_BEGAN)


def pre_stop_ended(pod: str) -> Moment:
    """A witness pod's preStop hook ends."""
    return _told(pod, HOOK_ENDED)


def any_sign(pod: str) -> Moment:
    """Anything that a witness pod wrote."""
    return _told(pod, "")


def last_sign(pod: str) -> Moment:
    """The last that a witness pod wrote: its end, to within `BEAT_S`, unless it lived when it was read."""
    return Moment("last-told", {"by": pod})


def logged(node: str, unit: str, text: str) -> Moment:
    """A line with this text in the journal of a unit, or of systemd about it."""
    return _told(journal(node, unit), text)


def machine_ended(node: str) -> Moment:
    """A node's machine ends: by itself, or because its power was cut."""
    return Moment("machine-ended", {"node": node})


def booted(node: str) -> Moment:
    """A node's machine boots, or goes on from a snapshot; the last time that it does."""
    return Moment("machine-began", {"node": node})


def kubelet_restarted(node: str) -> Moment:
    """The scenario restarts a node's kubelet."""
    return Moment("machine-step", {"node": node, "step": "kubelet-restarted"})


def journal(node: str, unit: str) -> str:
    """How a unit's journal is called as a witness."""
    return f"{node}/{unit}"


def knows(moment: Moment) -> bool:
    """Whether a moment is one of these."""
    return moment.name in WORDS


def unheard(history: History, moment: Moment, until_t: float) -> str:
    """Why such a moment may have come by `until_t` (s) and not be in the history, or nothing."""
    if "by" not in moment.args:
        return (
            ""
            if history.ended_t >= until_t
            else f"the recording ended {until_t - history.ended_t:.1f} s early"
        )
    heard = [entry for entry in history.of_kind("heard") if entry.data["by"] == moment.args["by"]]
    if not heard:
        return f"nobody read what {moment.args['by']} told"
    early_s = until_t - heard[-1].t
    return f"what {moment.args['by']} told was read {early_s:.1f} s too early" if early_s > 0 else ""


def lost(history: History, moment: Moment, time: Span) -> str:
    """Why a source may have told such a moment in a time, and it is not in the history, or nothing."""
    if moment.name not in _OF_SOURCES:
        return ""
    heard = [entry for entry in history.of_kind("heard") if entry.data["by"] == moment.args["by"]]
    for each in lost_of(heard[-1].data.get("unsure")) if heard else ():
        if each.touches(time):
            return each.why
    is_last = moment.name == "last-told" and heard
    return _lived(history, str(moment.args["by"]), heard[-1].t) if is_last else ""


def _lived(history: History, by: str, read_t: float) -> str:
    """Say that a witness may have lived when it was read (s), or nothing: it tells so each `BEAT_S`, and that
    it exits.
    """
    told = _words(history, by)
    is_over = not told or told[-1].data["what"] == EXITS or read_t - told[-1].t > BEAT_S
    return "" if is_over else f"{by} may have lived when it was read"


def last_told(history: History, by: str) -> str:
    """One line on what a witness told last."""
    told = _words(history, by)
    if not told:
        return f"{by}: told nothing"
    last, after_s = told[-1].data["what"], told[-1].t - told[0].t
    return f"{by}: told {len(told)} times, last {last!r}, {after_s:.1f} s after the first"


def _told(by: str, what: str) -> Moment:
    return Moment("told", {"by": by, "what": what})


def _words(history: History, by: str) -> list[Entry]:
    return [entry for entry in history.of_kind("told") if entry.data["by"] == by]


def _last_told(args: Args) -> Computed:
    def last(history: History, since_t: float) -> Occurrence | None:
        told = _words(history, args["by"])
        return Occurrence(told[-1].t) if told and told[-1].t >= since_t else None

    return Computed((), last)


def _machine_began(args: Args) -> Computed:
    """The last: a guest whose snapshot is of no use boots after that."""

    def last(history: History, since_t: float) -> Occurrence | None:
        steps = (entry for entry in history.of_kind("machine") if entry.data["node"] == args["node"])
        began = [entry.t for entry in steps if entry.data["step"] in ("booted", "restored")]
        return Occurrence(began[-1]) if began and began[-1] >= since_t else None

    return Computed((), last)


def _machine_ended(args: Args) -> Said:
    off = {"node": args["node"], "step": "powered-off"}
    return Said((("component", {"name": f"node-{args['node']}"}), ("machine", off)))


WORDS: Mapping[str, Callable[[Args], Shape]] = {
    "told": lambda args: Said((("told", {"by": args["by"], "what": {"$contains": args["what"]}}),)),
    "heard": lambda args: Said((("heard", {"by": args["by"]}),)),
    "last-told": _last_told,
    "machine-ended": _machine_ended,
    "machine-began": _machine_began,
    "machine-step": lambda args: Said((("machine", {"node": args["node"], "step": args["step"]}),)),
}
