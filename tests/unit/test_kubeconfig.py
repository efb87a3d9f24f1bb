"""Kubeconfigs that kubectl accepts, and those that give one line."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeproof.cluster.kubeconfig import Access, Pace, PacedApi, load, wall_offset_s
from nodeproof.model.problem import Problem

Json = Any
SERVER = "https://127.0.0.1:1"
CREDENTIAL = {"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1"}
PLUGIN = """#!/bin/sh
printf '%s' '{}' | sed "s/TOKEN/$AUDIT_TOKEN/"
"""


def write(path: Path, name: str, user: Json, **cluster: Json) -> Path:
    content = {
        "clusters": [{"name": name, "cluster": {"server": SERVER, **cluster}}],
        "users": [{"name": f"user-of-{name}", "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": f"user-of-{name}"}}],
        "current-context": name,
    }
    path.write_text(yaml.safe_dump(content))
    return path


def bearer(access: Access) -> str:
    headers: dict[str, str] = {}
    access.client.update_params_for_auth(headers, [], ["BearerToken"], "", "GET", None)
    return headers.get("authorization", "")


def plugin(folder: Path, script: str) -> Json:
    path = folder / "plugin"
    path.write_text(script)
    path.chmod(0o755)
    return {
        "exec": {"command": str(path), "apiVersion": CREDENTIAL["apiVersion"], "interactiveMode": "Never"}
    }


def test_exec_plugin_runs_with_the_environment_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUDIT_TOKEN", "of-the-user")
    script = PLUGIN.format(json.dumps({**CREDENTIAL, "status": {"token": "TOKEN"}}))
    access = load(str(write(tmp_path / "config", "prod", plugin(tmp_path, script))), "")
    assert (access.context, access.server, access.user) == ("prod", SERVER, "user-of-prod")
    assert bearer(access) == "Bearer of-the-user"


def test_failing_exec_plugin_is_named_in_one_line(tmp_path: Path) -> None:
    user = plugin(tmp_path, "#!/bin/sh\necho 'log in first' >&2\nexit 1\n")
    with pytest.raises(Problem, match="log in first") as caught:
        load(str(write(tmp_path / "config", "prod", user)), "")
    assert "\n" not in str(caught.value)


def test_token_file_may_end_with_a_line_break_and_be_rotated(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    access = load(str(write(tmp_path / "config", "prod", {"tokenFile": "token", "token": "old"})), "")
    assert bearer(access) == "Bearer secret"
    (tmp_path / "token").write_text("next\n")
    assert bearer(access) == "Bearer next"


def test_first_of_several_files_has_the_current_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [write(tmp_path / name, name, {"token": name}) for name in ("one", "two")]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, files)))
    assert load("", "").context == "one"
    assert bearer(load("", "two")) == "Bearer two"


def test_file_without_a_current_context_needs_its_name(tmp_path: Path) -> None:
    path = write(tmp_path / "config", "prod", {"token": "t"})
    path.write_text(path.read_text().replace("current-context: prod\n", ""))
    assert load(str(path), "prod").context == "prod"
    with pytest.raises(Problem, match="no current-context"):
        load(str(path), "")


def test_proxy_of_a_cluster_is_used(tmp_path: Path) -> None:
    path = write(tmp_path / "config", "prod", {"token": "t"}, **{"proxy-url": "http://127.0.0.1:2"})
    assert load(str(path), "").client.rest_client.pool_manager.proxy.port == 2


@pytest.mark.parametrize(
    ("content", "context", "word"),
    [
        (None, "", "no such file"),
        ("", "", "empty"),
        ("{", "", "kubeconfig cannot be used"),
        ("clusters: 7", "", "kubeconfig cannot be used"),
        ("[]", "", "kubeconfig cannot be used"),
        ("contexts: []", "", "current-context"),
        ("current-context: x\ncontexts: [{name: x, context: {cluster: y}}]", "", "kubeconfig cannot be used"),
        ("prod", "staging", "no context 'staging'"),
        ("impersonating", "", "impersonates"),
    ],
)
def test_bad_kubeconfig_gives_one_line(content: str | None, context: str, word: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    if content in ("prod", "impersonating"):
        write(path, "prod", {"token": "t", **({"as": "somebody"} if content != "prod" else {})})
    elif content is not None:
        path.write_text(content)
    with pytest.raises(Problem, match=word) as caught:
        load(str(path), context)
    assert "\n" not in str(caught.value)


def test_server_whose_certificate_is_not_verified_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "config", "prod", {"token": "t"}, **{"insecure-skip-tls-verify": True})
    with pytest.raises(Problem, match="insecure-skip-tls-verify"):
        PacedApi(load(str(path), ""))


def test_offset_of_the_servers_clock_is_read_from_its_answers() -> None:
    assert wall_offset_s("Sat, 28 Nov 2026 00:00:00 GMT", 100.0) == 1795824000 - 100
    assert wall_offset_s("", 100.0) == wall_offset_s("soon", 100.0) == 0.0


def test_requests_come_at_most_at_the_rate() -> None:
    pace, began_t = Pace(100.0), time.monotonic()
    for _request in range(11):
        pace.wait()
    assert time.monotonic() - began_t >= 0.1
