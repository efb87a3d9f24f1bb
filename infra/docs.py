"""`python -m infra.docs [--check]`: write the generated pages of docs: claims, words, commands.

With --check nothing is written, and a stale page is an error.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from infra.reference import GENERATED, command_pages, table
from nodeproof import scenario
from nodeproof.actions import Action, Named, Workload
from nodeproof.faults import FAULTS
from nodeproof.model import window
from nodeproof.model.claim import Claim
from nodeproof.model.formula import SLACK, SYMBOLS, Symbol
from nodeproof.model.judgment import Check, Effect, Moment, effect_of
from nodeproof.model.needs import FEATURES
from nodeproof.model.window import WindowSpec
from nodeproof.probes import Probe
from nodeproof.report.plain import DOCUMENTS
from nodeproof.session.coverage import collected
from nodeproof.sources import Audit
from tests.sensitivity import bugs

_RAISES = re.compile(r"(The\s+action\s+r|R)aises\s")
_OWN_CLUSTER: Mapping[Effect | None, Sequence[str]] = {
    "reads": ["Allowed on your own cluster."],
    "runs-pods": ["Allowed on your own cluster if its inventory has the key `pods`."],
}
DOCS = Path(__file__).resolve().parents[1] / "docs"
FOLDERS = ("claims/", "commands/", "words/")


def main() -> int:
    """Write or check all pages; return 1 if one is stale."""
    pages = {**claim_pages(), **words_pages(), **command_pages()}
    written = {str(path.relative_to(DOCS)): path.read_text() for path in DOCS.rglob("*.md")}
    stale = {name: text for name, text in pages.items() if written.get(name) != text}
    # Pages of an area or a section that nothing is in any more.
    gone = [name for name in written if name.startswith(FOLDERS) and name not in pages]
    if "--check" not in sys.argv[1:]:
        for name, text in stale.items():
            (DOCS / name).write_text(text)
        for name in gone:
            (DOCS / name).unlink()
    elif stale or gone:
        print(f"docs: stale: {', '.join([*stale, *gone])}; run `make docs`", file=sys.stderr)
        return 1
    return 0


def claim_pages() -> Mapping[str, str]:
    """Return the page of each area with its claims and their status, and the page of all areas."""
    claims, judged_by = collected()
    proven = {claim: sorted(files) for claim, files in judged_by.items()}
    caught, areas = defaultdict[str, list[str]](list), defaultdict[str, list[Claim]](list)
    for bug in bugs.load():
        for claim_id in bug.falls:
            caught[claim_id].append(bug.name)
    for claim in claims.values():
        areas[claim.area].append(claim)
    pages, rows = {}, []
    for area, entries in sorted(areas.items()):
        lines = [
            (
                f"`{claim.id}`",
                claim.statement,
                claim.tier,
                _status(claim, proven.get(claim.id, ())),
                ", ".join(caught[claim.id]),
            )
            for claim in entries
        ]
        body = table(("claim", "statement", "tier", "status", "bugs"), lines)
        pages[f"claims/{area}.md"] = f"# Claims: {area}\n\n{GENERATED}\n\n{body}\n"
        rows.append((f"[{area}](claims/{area}.md)", str(len(entries)), str(_judged(entries))))
    of_documents = [
        (f"[{title}]({address})", [claim for claim in claims.values() if claim.document == document])
        for document, (title, address) in DOCUMENTS.items()
    ]
    documents = [(link, str(len(entries)), str(_judged(entries))) for link, entries in of_documents]
    pages["claims.md"] = (
        f"# Claims\n\n{GENERATED}\n\n"
        f"{len(claims)} claims: statements of two pages of Kubernetes, and behaviour of the code that they "
        f"leave out. {_judged(claims.values())} of them are judged; `nodeproof claims` lists the kinds of "
        "lab and the profiles. Tier is the least kind of node that proves it. Bugs are wrong implementations "
        "by which it deviates (`infra/bugs`). More about each is in `scenarios/claims/`.\n\n"
        f"{table(('document', 'claims', 'judged'), documents)}\n\n"
        f"{table(('area', 'claims', 'judged'), rows)}\n"
    )
    return pages


def _judged(claims: Iterable[Claim]) -> int:
    return sum(claim.status == "judged" for claim in claims)


def _status(claim: Claim, files: Sequence[str]) -> str:
    if claim.status == "judged":
        where = ", ".join(f"`{name}`" for name in files)
        bug = f"; deviates in {claim.reported.versions}: {claim.reported.issue}" if claim.reported else ""
        return f"judged in {where}{f': {claim.reason}' if claim.reason else ''}{bug}"
    return f"{claim.status}: {claim.reason}" if claim.reason else claim.status


def words_pages() -> Mapping[str, str]:
    """Return a page for each kind of words of scenarios, and the page of all kinds."""
    words = {name: word for name, word in vars(scenario).items() if not name.startswith("_")}
    markers = _defined_in(scenario.marks, words)
    faults = {fault.word: getattr(scenario, fault.word) for fault in FAULTS.values()}
    faults |= _defined_in(scenario.faults, words)
    classes = {name: word for name, word in words.items() if inspect.isclass(word) and word is not Audit}
    sources = {name: word for name, word in classes.items() if word.__module__ == "nodeproof.sources"}
    public = {f"MOMENT.{name}": method for name, method in vars(Moment).items() if not name.startswith("_")}
    methods = _returning(public, Check)
    features = [(f"`{name}`", sentence) for name, sentence in FEATURES.items()]
    symbols = [(f"`{name}`", symbol.meaning, _place(symbol)) for name, symbol in SYMBOLS.items()]
    symbols.append((f"`{SLACK}`", "what measuring may add to a true duration (s)", "measured"))
    sections = {
        "Markers": _functions(markers),
        "Moments": _functions(_returning(words, Moment)),
        "Windows": _functions(_returning(vars(window), WindowSpec)),
        "Checks": _functions({**methods, **_returning(words, Check)}),
        "Actions": _functions(_returning(words, Action, Named, Workload)),
        "Probes": _functions(_returning(words, Probe)),
        "Sources": _functions({**sources, **_returning(words, Audit)}),
        "Faults": _functions(faults),
        "Features": table(("feature", "a lab that has it"), features),
        "Symbols of windows": table(("symbol", "stands for", "read from"), symbols),
    }
    addresses = {title: f"words/{title.lower().replace(' ', '-')}.md" for title in sections}
    pages = {
        addresses[title]: f"# Words: {title.lower()}\n\n{GENERATED}\n\n{body}\n"
        for title, body in sections.items()
    }
    links = [
        (f"[{title}]({address})", str(pages[address].count("\n| `"))) for title, address in addresses.items()
    ]
    return pages | {
        "words.md": f"# Words\n\n{GENERATED}\n\n"
        "All are from `nodeproof.scenario`; windows from its `windows`. How they go together is in "
        f"[scenarios.md](scenarios.md).\n\n{table(('words', 'number'), links)}\n"
    }


def _place(symbol: Symbol) -> str:
    share = "" if symbol.share == 1 else f" x {symbol.share:g}"
    return f"{symbol.component} `{symbol.path}`{share}"


def _defined_in(module: ModuleType, words: Mapping[str, object]) -> Mapping[str, Callable[..., object]]:
    return {
        name: word
        for name, word in words.items()
        if inspect.isfunction(word) and word.__module__ == module.__name__
    }


def _returning(words: Mapping[str, object], *kinds: type) -> Mapping[str, Callable[..., object]]:
    """Return the functions whose result is of one of these kinds."""
    names = {kind.__name__ for kind in kinds}
    functions = {name: word for name, word in words.items() if inspect.isfunction(word)}
    results = {name: str(word.__annotations__.get("return")) for name, word in functions.items()}
    return {name: word for name, word in functions.items() if results[name].partition("[")[0] in names}


def _functions(words: Mapping[str, Callable[..., object]]) -> str:
    rows = [(f"`{name}({_parameters(word)})`", _description(word)) for name, word in sorted(words.items())]
    return table(("word", "meaning"), rows)


def _parameters(word: Callable[..., object]) -> str:
    parameters = inspect.signature(word).parameters.values()
    stars: Mapping[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return ", ".join(
        stars.get(parameter.kind, "") + parameter.name
        if parameter.default is parameter.empty
        else f"{parameter.name}={parameter.default!r}"
        for parameter in parameters
        if parameter.name not in ("self", "id")
    )


def _description(word: Callable[..., object]) -> str:
    """Return a docstring without its sections, such as Raises, and without sentences on exceptions."""
    text = re.split(r"\n\n(?:Args|Attributes|Raises|Returns|Source):", inspect.getdoc(word) or "")[0]
    sentences = re.split(r"(?<=\.)\s+", text)
    described = [" ".join(sentence.split()) for sentence in sentences if not _RAISES.match(sentence)]
    return " ".join([*described, *_OWN_CLUSTER.get(effect_of(word), ())])


if __name__ == "__main__":
    sys.exit(main())
