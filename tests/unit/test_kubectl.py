"""kubectl commands that a scenario may not run, as their output would be in the report."""

from __future__ import annotations

import pytest

from nodeproof.actions.api import kubectl
from nodeproof.model.problem import Problem


@pytest.mark.parametrize(
    "arguments",
    [
        "get secrets", "get secret/x", "get Secret x", "get pods,secrets", "get secrets.v1. x",
        "get pods/x secrets/y",
        "get --raw /api/v1/secrets", "get --raw=/api/v1/secrets", "create token sa", "config view --raw",
        "get -o yaml -f /x.yaml", "get -f/x.yaml", "get -f=/x.yaml", "get --filename /x.yaml",
        "get --filename=/x.yaml", "get -k /folder", "diff -f x.yaml",
        "apply --dry-run=client -o yaml -f x.yaml",
        "exec p -- env", "exec p -- cat /var/run/secrets/kubernetes.io/serviceaccount/token",
        "-n a exec p -- sh -c env",
        "cp p:/run/x /tmp/x", "debug p -it", "cluster-info dump", "cluster-info -A dump",
    ],
)  # fmt: skip
def test_command_that_may_show_a_secret_is_refused(arguments: str) -> None:
    with pytest.raises(Problem, match="may show a secret"):
        kubectl(*arguments.split())


@pytest.mark.parametrize(
    "arguments",
    [
        "get nodes", "cordon node-1", "delete pod x -n nodeproof --wait=false", "get node node-1 -o yaml",
        "taint node node-1 secret-taint=yes:NoSchedule", "get configmaps -A -o yaml", "cluster-info",
        "drain node-1 --force --ignore-daemonsets", "wait --for=create node/x --timeout=30s",
        "get node node-1 --field-selector=a=b",
    ],
)  # fmt: skip
def test_other_commands_are_carried_out(arguments: str) -> None:
    assert kubectl(*arguments.split()).text == f"kubectl {arguments}"
