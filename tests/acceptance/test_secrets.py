"""What a lab must not tell is in nothing that is published, by whatever road it goes there."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from nodeproof.cluster.api import ApiError
from nodeproof.cluster.resources import NAMESPACE
from nodeproof.labs.client.lab import Lab
from tests.acceptance.altered import named
from tests.acceptance.command import nodeproof
from tests.unit.secrets_told import STATIC, found
from tests.waiting import eventually

TELLS = """
import json
import logging
from pathlib import Path

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    UNSCHEDULABLE, Stage, ask, claims, cordoned, kubectl, needs, taint_added, windows,
)

SECRETS = json.loads(Path(__file__).with_name("secrets.json").read_text())


def told(node, value):
    return ask("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"annotations": {"told": value}}})


@claims("cordon.taint")
@needs(nodes=2)
def test_a_lab_that_tells_its_secrets(lab: Stage, judge: Judge) -> None:
    node = lab.target
    tainted = taint_added(node, UNSCHEDULABLE, "NoSchedule").after(cordoned(node), windows.prompt(5))
    print(*SECRETS.values())
    logging.warning("%s", SECRETS)
    with lab.record():
        lab.do(told(node, json.dumps(SECRETS)))
        lab.do(kubectl("get", "node", node, "--output=yaml", "-v=9"))
        lab.do(kubectl("get", f"Bearer {SECRETS['token']}", may_fail=True))
        lab.do(told(node, None))
        lab.do(kubectl("cordon", node))
        lab.wait_for(tainted)
    judge("cordon.taint", tainted)
    lab.do(kubectl("uncordon", node))
    raise RuntimeError("the end: " + "\\n".join(SECRETS.values()))
"""
OF_A_RUN = (
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
"""The commands that write of a run, or of what became of it."""
VARIABLES = ("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "NODEPROOF_PASSWORD")
COMMAND_LIMIT_S = 15.0


def test_no_secret_is_in_anything_that_a_run_leaves(
    lab: Lab, small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.prepare()
    told = {"token": _token(lab), "bearer": f"Authorization: Bearer {STATIC}"}
    secrets = {**_keys(lab), **_certificates(lab), **told}
    untold = {name: uuid.uuid4().hex for name in (*VARIABLES, "Secret")}
    for name in VARIABLES:
        monkeypatch.setenv(name, untold[name])
    body = {"metadata": {"generateName": "canary-"}, "stringData": {"password": untold["Secret"]}}
    lab.cluster.api.create(f"/api/v1/namespaces/{NAMESPACE}/secrets", body)
    (tmp_path / "secrets.json").write_text(json.dumps(secrets))
    scenario, out = tmp_path / "test_tells.py", tmp_path / "out"
    scenario.write_text(TELLS)
    out.mkdir()
    run, junit = out / "run", out / "junit.xml"
    with _told_by_components(lab, secrets) as log:
        own = (f"--junitxml={junit}", "-o", "junit_logging=all", f"--deselect={secrets['token']}")
        # A shard, as `merge` takes nothing else.
        options = ("--shard=1/1", *own)
        done = nodeproof(
            "run", "--lab", named(lab), "--run", str(run), *options, small, str(scenario), cwd=tmp_path
        )
    (out / "terminal").write_text(done.stdout + done.stderr)
    for name, *arguments in OF_A_RUN:
        said = nodeproof(name, *(each.format(run=run, out=out) for each in arguments), cwd=out)
        with (out / f"{name}.said").open("a") as kept:
            kept.write(said.stdout + said.stderr)
        assert "Traceback" not in said.stderr

    assert done.status == 3
    assert "RuntimeError: the end: " in done.stdout, "what went wrong is in the report"
    assert (run / "site" / "index.html").exists()
    assert {"matrix.html", "matrix.md", "merged", "claims.xml"} <= {path.name for path in out.iterdir()}
    listed = (out / "published" / "index.html").read_text()
    assert [name for name in ("run", "run-recheck", "merged") if f"{name}/site/page.html" not in listed] == []
    assert (out / "published" / "run" / "site" / "index.html").exists()
    assert (out / "merged" / "site" / "page.html").exists()
    assert found(out, {**secrets, **untold, "bearer": STATIC}) == []
    # Nothing is there, and something was: each road had its secrets, and was cleaned.
    (history,) = run.glob("scenarios/*tells-its-secrets*/history.jsonl")
    logs = run / "labs" / lab.name
    roads = [run / "run.json", history, history.with_name("judgments.json"), junit, out / "terminal"]
    roads += [logs / log.name, logs / "audit.jsonl"]
    assert [path.name for path in roads if "[redacted " not in path.read_text()] == []
    for kind in ("result.json", "attachment.json", "attachment.txt"):
        assert any("[redacted " in path.read_text() for path in (run / "allure-results").glob(f"*-{kind}"))


def _keys(lab: Lab) -> Mapping[str, str]:
    """The private keys of a lab."""
    keys = [*(lab.dir / "pki").glob("*.key"), lab.dir / "pki" / "ssh"]
    assert len(keys) > 3
    return {path.name: path.read_text() for path in keys}


def _certificates(lab: Lab) -> Mapping[str, str]:
    """The certificates of a lab. All that is in one is public: names, times and a public key, shown to who
    connects; its private part is the key of the same name, beside it. A report has no use for either, and
    where a certificate comes (a kubeconfig, a Secret) its key comes, too: both are taken out, whole.
    """
    certificates = list((lab.dir / "pki").glob("*.crt"))
    assert {path.name for path in certificates} >= {"ca.crt", "admin.crt", "apiserver.crt"}
    return {path.name: path.read_text() for path in certificates}


def _token(lab: Lab) -> str:
    """A token of a service account, as the lab's API server has issued it."""
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    assert eventually(lambda: lab.cluster.api.get(account.removesuffix("/token")), COMMAND_LIMIT_S)
    return str(lab.cluster.api.create(account, request)["status"]["token"])


@contextlib.contextmanager
def _told_by_components(lab: Lab, secrets: Mapping[str, str]) -> Iterator[Path]:
    """In a log, as at a high verbosity; and in the audit log, by who puts a token where it is logged."""
    log = lab.life.logs / f"told-{uuid.uuid4().hex[:6]}.log"
    log.write_text("".join(f"I1124 headers=< {secret}\n" for secret in secrets.values()))
    node = lab.fleet.node_names()[0]
    path = f"/api/v1/nodes/{node}?fieldManager={secrets['token']}"
    with contextlib.suppress(ApiError):
        lab.cluster.api.ask("PATCH", path, {}, {"User-Agent": secrets["bearer"]}, ())
    try:
        yield log
    finally:
        log.unlink()
