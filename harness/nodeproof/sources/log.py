"""What a component of the lab logs, by lines that hold a text."""

from __future__ import annotations

import mmap
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from nodeproof.artifacts.components import HOLLOW, ROLES
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.ground.logs import LOOKED_EACH_S
from nodeproof.model.judgment import Moment
from nodeproof.model.problem import Problem
from nodeproof.model.testimony import Lost
from nodeproof.recording.testimony import Word, lines_of
from nodeproof.recording.wall import wall_offset_s
from nodeproof.sources.loss import joined, read_journal, why_unsure
from nodeproof.sources.source import Hearing, Told, any_word, last_heard

_HEADER = re.compile(r"[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6}) ")
"""How klog begins a line: level, month and day, time of day (k8s.io/klog/v2, `formatHeader`); no year."""
_TORN = re.compile(r".[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6}  *\d+ \S+\.go:\d+\] ")
"""A header inside a line: what stood before it was cut off, as a full disk does."""
_KUBELET = "kubelet-"
_UNIT = "kubelet.service"
_HALF_A_YEAR_S = 183 * 86400.0


@dataclass(frozen=True)
class Log:
    """The lines of `component` (kube-controller-manager, `kubelet-NODE`) that hold `text`.

    The text has to be one that stands in the component's executable, which may be that of others, too: the
    silence of a text that nobody can say proves nothing. `about` has to be in the line as well: what is
    filled in, such as a name.
    """

    component: str
    text: str
    about: str = ""

    @property
    def by(self) -> str:
        """The text is part of it."""
        about = f" about {self.about!r}" if self.about else ""
        return f"log of {self.component}: {self.text!r}{about}"

    @property
    def line(self) -> Moment:
        """The next of these lines."""
        return any_word(self)

    @property
    def heard(self) -> Moment:
        """Up to when it was heard."""
        return last_heard(self)

    def read(self, hearing: Hearing) -> Told:
        """Read the log and its earlier part; of a node with a journal that, in its present boot. Raises
        Problem on a component without a log, and on a text that it can't say, MachineError, OSError.
        """
        lab, is_kubelet = hearing.lab, self.component.startswith(_KUBELET)
        role = _kubelet_of(lab) if is_kubelet else self.component
        in_journal = is_kubelet and _has_journal(lab, self._node)
        if role not in ROLES or not (in_journal or _log(lab, self.component).exists()):
            raise Problem(f"no component {self.component!r}", "Log(...)", f"there are: {', '.join(ROLES)}")
        if not _holds(lab.components.path(role), self.text.encode()):
            said = f"{self.component} has no text {self.text!r}"
            raise Problem(said, "Log(...)", "take what stands in its source, without what is filled in")
        if in_journal:
            kept = read_journal(hearing, self._node, _UNIT, hearing.present_clock(self._node))
        else:
            kept = self._files(hearing)
        return replace(kept, words=[word for word in kept.words if self._is_meant(word.what)])

    def _is_meant(self, line: str) -> bool:
        return self.text in line and self.about in line

    @property
    def _node(self) -> str:
        return self.component.removeprefix(_KUBELET)

    def _files(self, hearing: Hearing) -> Told:
        """Every line that is left of the log's two parts."""
        history, until_t = hearing.history, time.monotonic()
        words = [Word(history.from_epoch(at), line) for at, line in _lines(hearing.lab, self.component)]
        moved_s = abs(wall_offset_s() - history.wall_offset_s(until_t))
        return Told(words, until_t, moved_s, unsure=self._why_unsure(hearing, words, until_t))

    def _why_unsure(self, hearing: Hearing, words: Sequence[Word], until_t: float) -> list[Lost]:
        """Which lines since the recording began the log may lack."""
        whole_since_t = words[0].t if words else until_t
        if joined(hearing.history, self._node) and not _earlier(hearing.lab, self.component).exists():
            whole_since_t = hearing.history.began_t
        name = f"the log of {self.component}"
        lost = [*self._cut(hearing), *self._torn(hearing, words, until_t)]
        return [*why_unsure(hearing, name, whole_since_t, until_t), *lost]

    def _cut(self, hearing: Hearing) -> Iterator[Lost]:
        """What was written while the log was cut."""
        earlier, history = _earlier(hearing.lab, self.component), hearing.history
        if not earlier.exists():
            return
        cut_t = history.from_epoch(earlier.stat().st_mtime)
        if cut_t > history.began_t:
            why = f"the log of {self.component} was cut while it was recorded"
            yield Lost(cut_t - LOOKED_EACH_S, cut_t + LOOKED_EACH_S, why)

    def _torn(self, hearing: Hearing, words: Sequence[Word], until_t: float) -> Iterator[Lost]:
        """What a full disk kept from being written, up to the line that follows on the same one."""
        began_t = hearing.history.began_t
        why = f"a line of the log of {self.component} was torn: there was no room for it"
        for line in words:
            inside = [found.start() + 1 for found in _TORN.finditer(line.what)]
            times = [_told_at(line.what[at:]) for at in inside]
            later = [hearing.history.from_epoch(at) for at in times if at is not None]
            if inside and max(later, default=until_t) >= began_t:
                yield Lost(line.t, max(later, default=until_t), why)
        if words and not _log(hearing.lab, self.component).read_bytes().endswith(b"\n"):
            yield Lost(words[-1].t, max(until_t, words[-1].t), why)


def _kubelet_of(lab: Lab) -> str:
    """Which executable its nodes run."""
    return HOLLOW if lab.kind.is_hollow else "kubelet"


def _has_journal(lab: Lab, node: str) -> bool:
    return "systemd" in lab.features and node in lab.fleet.node_names()


def _earlier(lab: Lab, component: str) -> Path:
    return lab.life.logs / f"{component}.log.1"


def _log(lab: Lab, component: str) -> Path:
    return lab.life.logs / f"{component}.log"


def _lines(lab: Lab, component: str) -> Iterator[tuple[float, str]]:
    """Each line with its time (s since the epoch); one without is part of the one before it."""
    at = 0.0
    for log in (_earlier(lab, component), _log(lab, component)):
        for line in lines_of(log.read_bytes().decode(errors="replace")) if log.exists() else ():
            at = _told_at(line) or at
            if at:
                yield at, line


def _told_at(line: str) -> float | None:
    """When a line was written (s since the epoch); its year is the one that brings it nearest to now."""
    header = _HEADER.match(line)
    if header is None:
        return None
    now = datetime.now(UTC)
    month, day, hour, minute, second, micro = map(int, header.groups())
    for year in (now.year, now.year - 1, now.year + 1):
        try:
            at = datetime(year, month, day, hour, minute, second, micro, UTC).timestamp()
        except ValueError:
            continue
        if abs(at - now.timestamp()) < _HALF_A_YEAR_S:
            return at
    return None


def _holds(executable: Path, text: bytes) -> bool:
    """Whether a text stands in an executable, as far as that is known: a script starts another one."""
    with executable.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return mapped[:2] == b"#!" or mapped.find(text) >= 0
