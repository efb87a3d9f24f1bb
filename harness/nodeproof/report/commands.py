"""The commands that read runs: no lab, no cluster, no pytest."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from nodeproof import catalogue
from nodeproof.model.claim import Claim
from nodeproof.report import comparison, digest, merge, page, publish, recheck, rundir, site, tables
from nodeproof.report.digest import Digest
from nodeproof.report.plain import encodable
from nodeproof.terminal import document, put, say


def _put(text: str, place: str) -> None:
    """Print a text, or write it into a file and print where that is."""
    if place == rundir.STANDARD_OUTPUT:
        document(f"{encodable(text.rstrip())}\n")
    else:
        put(str(rundir.write_report(Path(place), text)))


def _claims(arguments: argparse.Namespace) -> Mapping[str, Claim]:
    """Return the catalogue with the user's claims."""
    return catalogue.load(arguments.claims)


def _read_runs(arguments: argparse.Namespace) -> list[Digest]:
    claims = _claims(arguments)
    return [digest.read(run, claims) for run in arguments.runs]


def recheck_run(arguments: argparse.Namespace) -> int:
    """Judge a stored run again, and rebuild its reports in a folder inside the run."""
    claims = _claims(arguments)
    rechecked = recheck.recheck(arguments.run_folder, claims)
    run, facts = rechecked.digest, rechecked.facts
    put(tables.render(run, str(run.run), run.since))
    for difference in rechecked.changed:
        put(f"changed: {difference}")
    for sentence in run.missing:
        say(f"the run is not whole: {sentence}")
    judged_page = page.write(run.run, claims) if arguments.no_site else site.write(run.run, say, claims)
    say(f"the page, judged again: {judged_page}")
    say(f"JUnit XML: {run.run / tables.JUNIT_FILE}")
    broken_off = facts.exit_reason or ("" if facts.ended else "the run has no end")
    required = digest.named_claims(facts)
    return digest.exit_code(run.rows, required, facts.selected, broken_off, is_whole=run.is_whole)


def merge_shards(arguments: argparse.Namespace) -> int:
    """Make one run of shards, with its site."""
    claims = _claims(arguments)
    merged = merge.merge(arguments.runs, arguments.run, claims)
    folder, facts, run = merged.folder, merged.facts, digest.read(merged.folder, claims)
    for role in merged.mixed:
        say(f"shards ran different executables of {role}: run.json names the first one's")
    put(tables.render(run, str(folder), run.since))
    for sentence in run.missing:
        say(f"the run is not whole: {sentence}")
    if facts.exit_reason:
        say(facts.exit_reason)
    if not arguments.no_site:
        say(f"report, the Nodes page with its verdicts: {site.write(folder, say, claims)}")
    return digest.exit_code(
        run.rows, merged.selected, facts.selected, facts.exit_reason, is_whole=run.is_whole
    )


def serve_site(arguments: argparse.Namespace) -> int:
    """Serve a run's site until Ctrl-C."""
    run, claims = arguments.run_folder.resolve(), _claims(arguments)
    if not (run / "site" / "index.html").exists():
        site.generate(run, say, claims)
    elif not (run / "site" / page.FILE).exists():
        page.write(run, claims)
    site.serve(run, say, arguments.port)
    return 0


def write_page(arguments: argparse.Namespace) -> int:
    """Write a run's page, judged; needs no Node.js."""
    put(str(page.write(arguments.run_folder, _claims(arguments))))
    return 0


def write_junit(arguments: argparse.Namespace) -> int:
    """Print or write a run's verdicts as JUnit XML."""
    _put(tables.junit_xml(digest.read(arguments.run_folder, _claims(arguments))), arguments.output)
    return 0


def compare_runs(arguments: argparse.Namespace) -> int:
    """Print what differs between two runs; return 1 if something regressed."""
    claims = _claims(arguments)
    compared = comparison.compare([digest.read(run, claims) for run in (arguments.before, arguments.after)])
    put(comparison.changes_text(compared))
    return 1 if compared.regressions else 0


def show_matrix(arguments: argparse.Namespace) -> int:
    """Print or write the page's claims across several runs."""
    compared = comparison.compare(_read_runs(arguments))
    if arguments.html:
        _put(comparison.matrix_html(compared, Path(arguments.html).parent), arguments.html)
    if arguments.markdown:
        _put(comparison.matrix_markdown(compared), arguments.markdown)
    if arguments.versions:
        _put(comparison.versions_markdown(compared), arguments.versions)
    if not (arguments.html or arguments.markdown or arguments.versions):
        put(comparison.matrix_text(compared))
    return 0


def summarize(arguments: argparse.Namespace) -> int:
    """Print runs in Markdown, one after the other, or write them as OpenMetrics."""
    runs = _read_runs(arguments)
    if arguments.openmetrics:
        put(str(rundir.write_report(arguments.openmetrics, tables.open_metrics(runs))))
        return 0
    for run in runs:
        document(f"{tables.summary(run)}\n")
    return 0


def publish_runs(arguments: argparse.Namespace) -> int:
    """Copy the public part of runs into a folder, and list all runs there."""
    claims = _claims(arguments)
    published = publish.publish(arguments.folder, arguments.runs, claims, arguments.keep, arguments.mib)
    for name in published.removed:
        say(f"removed, as newer ones take its place: {name}")
    for sentence in published.unread:
        say(f"not listed: {sentence}")
    for run in published.foreign:
        next_step = "publish what `nodeproof recheck` makes of it"
        say(f"published without Allure's page, which was built elsewhere: {run}; {next_step}")
    put(str(published.index))
    return 0
