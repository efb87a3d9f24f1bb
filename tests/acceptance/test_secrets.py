"""Secrets of a lab are in no published file, whether a log, a request or a report leaks them."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from nodeproof.cluster.api import ApiError
from nodeproof.cluster.resources import NAMESPACE
from nodeproof.labs.client.handle import LabHandle
from tests.acceptance.altered import lab_option
from tests.acceptance.command import nodeproof
from tests.unit.planted_secrets import STATIC, find_secrets
from tests.waiting import eventually

LEAKING_SCENARIO = """
import json
import logging
from pathlib import Path

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    UNSCHEDULABLE, Lab, claims, cordoned, kubectl, needs, send_request, taint_added, windows,
)

SECRETS = json.loads(Path(__file__).with_name("secrets.json").read_text())


def annotate(node, value):
    return send_request("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"annotations": {"leaked": value}}})


@claims("cordon.taint")
@needs(nodes=2)
def test_secrets_of_the_lab_are_printed(lab: Lab, judge: Judge) -> None:
    node = lab.target
    tainted = taint_added(node, UNSCHEDULABLE, "NoSchedule").after(cordoned(node), windows.up_to(5))
    print(*SECRETS.values())
    logging.warning("%s", SECRETS)
    with lab.record():
        lab.run(annotate(node, json.dumps(SECRETS)))
        lab.run(kubectl("get", "node", node, "--output=yaml", "-v=9"))
        lab.run(kubectl("get", f"Bearer {SECRETS['token']}", may_fail=True))
        lab.run(annotate(node, None))
        lab.run(kubectl("cordon", node))
        lab.wait_for(tainted)
    judge("cordon.taint", tainted)
    lab.run(kubectl("uncordon", node))
    raise RuntimeError("the end: " + "\\n".join(SECRETS.values()))
"""
COMMANDS_ABOUT_RUNS = (
    ("summary", "{run}"),
    ("matrix", "{run}"),
    ("matrix", "{run}", "--html", "{out}/matrix.html", "--markdown", "{out}/matrix.md"),
    ("recheck", "{run}"),
    ("page", "{run}"),
    ("merge", "{run}", "--run", "{out}/merged", "--no-site"),
    ("page", "{out}/merged"),
    ("compare", "{run}", "{out}/merged"),
    ("junit", "{run}"),
    ("junit", "{run}", "--output", "{out}/claims.xml"),
    ("publish", "{out}/published", "{run}", "{run}/recheck", "{out}/merged"),
)
"""The commands that write about a run or its copies."""
VARIABLES = ("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "NODEPROOF_PASSWORD")
COMMAND_TIMEOUT_S = 15.0


def test_run_leaves_no_secret_in_any_file(
    lab: LabHandle, small_scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.prepare()
    planted = {"token": _token(lab), "bearer": f"Authorization: Bearer {STATIC}"}
    secrets = {**_keys_and_certificates(lab), **planted}
    unprinted = {name: uuid.uuid4().hex for name in (*VARIABLES, "Secret")}
    for name in VARIABLES:
        monkeypatch.setenv(name, unprinted[name])
    body = {"metadata": {"generateName": "canary-"}, "stringData": {"password": unprinted["Secret"]}}
    lab.cluster.api.create(f"/api/v1/namespaces/{NAMESPACE}/secrets", body)
    (tmp_path / "secrets.json").write_text(json.dumps(secrets))
    scenario, out = tmp_path / "test_leaks.py", tmp_path / "out"
    scenario.write_text(LEAKING_SCENARIO)
    out.mkdir()
    run, junit = out / "run", out / "junit.xml"
    with _write_to_component_logs(lab, secrets) as log:
        own = (f"--junitxml={junit}", "-o", "junit_logging=all", f"--deselect={secrets['token']}")
        # A shard, as `merge` accepts nothing else.
        options = ("--shard=1/1", *own)
        process = nodeproof(
            "run",
            "--lab",
            lab_option(lab),
            "--run",
            str(run),
            *options,
            small_scenario,
            str(scenario),
            cwd=tmp_path,
        )
    (out / "terminal").write_text(process.stdout + process.stderr)
    for name, *arguments in COMMANDS_ABOUT_RUNS:
        command_process = nodeproof(
            name, *(argument.format(run=run, out=out) for argument in arguments), cwd=out
        )
        with (out / f"{name}.output").open("a") as file:
            file.write(command_process.stdout + command_process.stderr)
        assert "Traceback" not in command_process.stderr

    assert process.status == 3
    assert "RuntimeError: the end: " in process.stdout, "what went wrong is in the report"
    assert (run / "site" / "index.html").exists()
    assert {"matrix.html", "matrix.md", "merged", "claims.xml"} <= {path.name for path in out.iterdir()}
    listed = (out / "published" / "index.html").read_text()
    assert [name for name in ("run", "run-recheck", "merged") if f"{name}/site/page.html" not in listed] == []
    assert (out / "published" / "run" / "site" / "index.html").exists()
    assert (out / "merged" / "site" / "page.html").exists()
    assert find_secrets(out, {**secrets, **unprinted, "bearer": STATIC}) == []
    # Each file got secrets, which were redacted.
    (history,) = run.glob("scenarios/*secrets-of-the-lab*/history.jsonl")
    logs = run / "labs" / lab.name
    leaking_files = [run / "run.json", history, history.with_name("judgments.json"), junit, out / "terminal"]
    leaking_files += [logs / log.name, logs / "audit.jsonl"]
    assert [path.name for path in leaking_files if "[redacted " not in path.read_text()] == []
    for kind in ("result.json", "attachment.json", "attachment.txt"):
        assert any("[redacted " in path.read_text() for path in (run / "allure-results").glob(f"*-{kind}"))


def _keys_and_certificates(lab: LabHandle) -> Mapping[str, str]:
    """Return the private keys of a lab, and its certificates, for which a report has no use.

    All that is in one is public: names, times and a public key, shown to every client. Its private key is
    beside it, under the same name. Where a certificate is (a kubeconfig, a Secret), its key is, too: both are
    redacted as a whole.
    """
    pki = lab.dir / "pki"
    certificates, keys = [*pki.glob("*.crt")], [*pki.glob("*.key"), pki / "ssh"]
    assert {path.name for path in certificates} >= {"ca.crt", "admin.crt", "apiserver.crt"}
    assert len(keys) > 3
    return {path.name: path.read_text() for path in (*certificates, *keys)}


def _token(lab: LabHandle) -> str:
    """Return a service account token issued by the lab's API server."""
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    assert eventually(lambda: lab.cluster.api.get(account.removesuffix("/token")), COMMAND_TIMEOUT_S)
    return str(lab.cluster.api.create(account, request)["status"]["token"])


@contextlib.contextmanager
def _write_to_component_logs(lab: LabHandle, secrets: Mapping[str, str]) -> Iterator[Path]:
    """Write secrets to a component's log and, through a request, to the audit log; return the files."""
    log = lab.life.logs / f"leaked-{uuid.uuid4().hex[:6]}.log"
    log.write_text("".join(f"I1124 headers=< {secret}\n" for secret in secrets.values()))
    node = lab.fleet.node_names()[0]
    path = f"/api/v1/nodes/{node}?fieldManager={secrets['token']}"
    with contextlib.suppress(ApiError):
        lab.cluster.api.ask("PATCH", path, {}, {"User-Agent": secrets["bearer"]}, ())
    try:
        yield log
    finally:
        log.unlink()
