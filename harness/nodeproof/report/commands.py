"""What the commands do that read runs: no lab, no cluster, no pytest."""

from __future__ import annotations

import argparse
from pathlib import Path

from nodeproof.model.problem import Problem
from nodeproof.terminal import document, put, say


def _put(text: str, place: str) -> None:
    """Print a text, or write it into a file and print where that is."""
    from nodeproof.report import html, whole

    if place == whole.STANDARD_OUTPUT:
        document(f"{html.printable(text)}\n")
    else:
        put(str(html.write(Path(place), text)))


def recheck(arguments: argparse.Namespace, _rest: list[str]) -> int:
    """Judge a saved run again, and rebuild all that a reader opens, in a folder of its own inside the run."""
    from nodeproof import catalogue
    from nodeproof.report import junit, outcome, page, rebuild, since, site, table

    claims = catalogue.load(arguments.claims)
    made = rebuild.rebuild(arguments.run_folder, claims)
    folder, facts = made.folder, made.facts
    took_s = facts.duration_s if facts.ended else None
    put(table.render(made.rows, took_s, str(folder), since.deviating(folder, facts, made.rows)))
    for difference in made.changed:
        put(f"changed: {difference}")
    for said in made.missing:
        say(f"the run is not whole: {said}")
    if arguments.no_site:
        page.write(folder, claims)
    else:
        try:
            say(f"Allure site: {site.generate(folder, say, claims)}")
        except Problem as problem:
            say(f"no Allure site, the rest is done: {problem.line}")
    say(f"the page, judged again: {folder / 'site' / page.FILE}")
    say(f"JUnit XML: {folder / junit.FILE}")
    broken_off = facts.exit_reason or ("" if facts.ended else "the run has no end")
    asked, is_whole = outcome.asked_when_recorded(facts), not made.missing
    return outcome.exit_code(made.rows, asked, facts.selected, broken_off, is_whole=is_whole)


def merge(arguments: argparse.Namespace, _rest: list[str]) -> int:
    """Make one run of shards, with its site."""
    from nodeproof import catalogue
    from nodeproof.report import merge, outcome, page, rundir, since, site, table

    runs, claims = arguments.runs, catalogue.load(arguments.claims)
    shard = merge.shard_of(runs)
    folder = arguments.run or rundir.new_folder(runs[0].resolve().parent, shard.profile, shard.lab)
    facts = merge.merge(runs, folder, claims)
    for role in merge.different_components(runs):
        say(f"shards ran different executables of {role}: run.json names the first one's")
    rows = rundir.read_verdicts(folder)
    put(table.render(rows, facts.duration_s, str(folder), since.deviating(folder, facts, rows)))
    if facts.exit_reason:
        say(facts.exit_reason)
    if not arguments.no_site:
        index = site.generate(folder, say, claims)
        say(f"report, the Nodes page with its verdicts: {index.with_name(page.FILE)}")
        say(f"report, each scenario with its evidence: {index}")
    return outcome.exit_code(rows, shard.asked, facts.selected, facts.exit_reason)


def report(arguments: argparse.Namespace, _rest: list[str]) -> int:
    """Serve a run's site until Ctrl-C."""
    from nodeproof import catalogue
    from nodeproof.report import page as judged
    from nodeproof.report import site

    run, claims = arguments.run_folder.resolve(), catalogue.load(arguments.claims)
    if not (run / "site" / "index.html").exists():
        site.generate(run, say, claims)
    elif not (run / "site" / judged.FILE).exists():
        judged.write(run, claims)
    site.serve(run, say, arguments.port)
    return 0


def page(arguments: argparse.Namespace, _rest: list[str]) -> int:
    """Write a run's page, judged; needs no Node.js."""
    from nodeproof import catalogue
    from nodeproof.report import page

    put(str(page.write(arguments.run_folder, catalogue.load(arguments.claims))))
    return 0


def junit(arguments: argparse.Namespace, _rest: list[str]) -> int:
    """Print or write a run's verdicts as JUnit XML."""
    from nodeproof import catalogue
    from nodeproof.report import digest, junit, whole

    claims = catalogue.load(arguments.claims)
    if arguments.output == whole.STANDARD_OUTPUT:
        document(junit.render(digest.read(arguments.run_folder), claims))
    else:
        put(str(junit.write(arguments.run_folder, claims, Path(arguments.output))))
    return 0


def compare(arguments: argparse.Namespace, _rest: list[str]) -> int:
    """Say what differs between two runs; 1 where something regressed."""
    from nodeproof import catalogue
    from nodeproof.report import compare, digest

    before, after = (digest.read(run) for run in (arguments.before, arguments.after))
    found = compare.compare(before, after, catalogue.load(arguments.claims))
    put(compare.render(found))
    return found.exit_code


def matrix(arguments: argparse.Namespace, _rest: list[str]) -> int:
    """Print or write the page's claims across several runs."""
    from nodeproof import catalogue
    from nodeproof.report import digest, matrix

    made = matrix.matrix([digest.read(run) for run in arguments.runs], catalogue.load(arguments.claims))
    if arguments.html:
        _put(matrix.in_html(made, Path(arguments.html).parent), arguments.html)
    if arguments.markdown:
        _put(matrix.in_markdown_table(made), arguments.markdown)
    if not arguments.html and not arguments.markdown:
        put(matrix.on_a_terminal(made))
    return 0


def summary(arguments: argparse.Namespace, _rest: list[str]) -> int:
    """Print runs in Markdown, one after the other."""
    from nodeproof import catalogue
    from nodeproof.report import digest, summary

    claims = catalogue.load(arguments.claims)
    for run in arguments.runs:
        document(f"{summary.render(digest.read(run), claims)}\n")
    return 0


def publish(arguments: argparse.Namespace, _rest: list[str]) -> int:
    """Copy what may be seen of runs into a folder, and list all that are there."""
    from nodeproof import catalogue
    from nodeproof.report import publish

    claims = catalogue.load(arguments.claims)
    made = publish.publish(arguments.folder, arguments.runs, claims, arguments.keep, arguments.mib)
    for name in made.removed:
        say(f"removed, as newer ones take its place: {name}")
    for said in made.unread:
        say(f"not listed: {said}")
    for run in made.foreign:
        next_step = "publish what `nodeproof recheck` makes of it"
        say(f"published without Allure's page, which was built elsewhere: {run}; {next_step}")
    put(str(made.index))
    return 0
