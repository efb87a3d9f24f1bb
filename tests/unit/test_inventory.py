"""Inventories of existing clusters: what they mean, and one line for each bad entry."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import jsonschema
import pytest

from nodeproof.existing import inventory
from nodeproof.existing.guards import Abort, Alerts, Command, Hours, Matcher, Query, Url
from nodeproof.existing.inventory import Inventory
from nodeproof.existing.power import Fence, Libvirt, OwnCommand, Power
from nodeproof.faults import FAULTS
from nodeproof.model.problem import Problem

UID = "6f0c1c1e-0000-4000-8000-000000000001"
VALID = f"""\
cluster:
  kubeconfig: config
  context: prod-eu
  uid: {UID}
ssh:
  config: ssh_config
  known_hosts: known_hosts
hosts:
  ansible: hosts.yaml
  group: kube_node
nodes:
  worker-7:
    may: [partition, power-off]
    power: bmc-7
  worker-8:
    may: [power-off]
    power: vm
  worker-9:
    may: [unit-down]
    power: script
  control-1:
    may: [unit-down]
    control_plane: true
power:
  bmc-7:
    driver: fence
    options: {{agent: fence_redfish, ip: 10.9.0.7, ssl: true}}
    secret_env: BMC_PASSWORD
    switch: jump
  vm: {{driver: libvirt, switch: jump, options: {{uri: "qemu+ssh://host/system", domain: worker-8}}}}
  script: {{driver: command, options: {{argv: [/opt/power, "{{action}}", "{{node}}"]}}}}
abort:
  period_s: 2
  conditions:
    - url: https://shop.example/healthz
    - command: [./slo.sh, --strict]
    - prometheus: http://prometheus.example:9090
      query: up == 0
hours: {{zone: Europe/Berlin, days: [Tue, Wed], from: 09:00, to: 16:30}}
alerts:
  alertmanager: https://alerts.example
  match: ['severity=~"critical|page"', alertname != Watchdog]
pods: {{image: "registry.example:5000/base/busybox:1.37@sha256:0af1"}}
"""
Parse = Callable[[str], Inventory]


@pytest.fixture
def parse(tmp_path: Path) -> Parse:
    """Return `parse(text)`, beside whose file the files that `VALID` names are."""
    for name in ("config", "ssh_config", "known_hosts", "hosts.yaml"):
        (tmp_path / name).touch()
    return lambda text: inventory.parse(text, tmp_path / "cluster.yaml")


def problem_of(parse: Parse, text: str) -> Problem:
    with pytest.raises(Problem) as caught:
        parse(text)
    return caught.value


def test_valid_inventory_is_read(parse: Parse, tmp_path: Path) -> None:
    content = parse(VALID)
    assert content.cluster == inventory.ClusterAddress(str(tmp_path / "config"), "prod-eu", UID)
    assert content.ssh == inventory.Ssh(tmp_path / "ssh_config", tmp_path / "known_hosts")
    assert content.hosts == inventory.AnsibleHosts(tmp_path / "hosts.yaml", "kube_node")
    nodes = content.nodes
    assert nodes["worker-7"].faults == ("partition", "power-off")
    fence = Fence({"agent": "fence_redfish", "ip": "10.9.0.7", "ssl": True})
    assert nodes["worker-7"].power == Power(fence, "BMC_PASSWORD", "jump")
    libvirt = Libvirt({"uri": "qemu+ssh://host/system", "domain": "worker-8"})
    assert nodes["worker-8"].power == Power(libvirt, switch="jump")
    assert nodes["worker-9"].power == Power(OwnCommand({"argv": ["/opt/power", "{action}", "{node}"]}))
    assert nodes["control-1"].power is None
    assert [name for name, node in nodes.items() if node.is_control_plane] == ["control-1"]
    conditions = (
        Url("https://shop.example/healthz"),
        Command(("./slo.sh", "--strict")),
        Query("http://prometheus.example:9090", "up == 0"),
    )
    assert content.abort == Abort(conditions, period_s=2, timeout_s=3)
    assert content.hours == Hours("Europe/Berlin", ("Tue", "Wed"), "09:00", "16:30")
    matchers = (Matcher("severity", "=~", "critical|page"), Matcher("alertname", "!=", "Watchdog"))
    assert content.alerts == Alerts("alertmanager", "https://alerts.example", matchers, timeout_s=3)
    assert content.pod_image == "registry.example:5000/base/busybox:1.37@sha256:0af1"


def test_kubeconfig_and_hosts_may_be_left_out(parse: Parse) -> None:
    lines = [line for line in VALID.splitlines() if not any(key in line for key in ("kubeconfig", "group"))]
    text = "\n".join(line for line in lines if "hosts:" not in line or "known" in line)
    content = parse(text.replace("  ansible: hosts.yaml\n", ""))
    assert (content.cluster.kubeconfig, content.hosts) == ("", None)


def test_guards_may_be_left_out(parse: Parse) -> None:
    content = parse(VALID[: VALID.index("abort:")])
    assert (content.abort, content.hours, content.alerts) == (Abort(), None, None)
    assert content.abort_reasons() == []
    assert content.pod_image == ""
    content.check_run(datetime.now(UTC))


BAD = [
    ("busybox:1.37@", "busy box@", "an image that the nodes have or can pull", 43),
    (f"uid: {UID}", "uid: other", "UID of namespace kube-system", 4),
    ("context: prod-eu", "context: 7", "a text", 3),
    ("  context: prod-eu\n", "", "'context' is a required property", 2),
    ("group: kube_node", "group: kube_node\n  port: 22", "unknown key port", 11),
    ("[partition, power-off]", "[partition, storm]", "'storm' is not one of", 13),
    ("[partition, power-off]", "[]", "at least one", 13),
    ("worker-7:", "Worker_7:", "a Node's name", 13),
    ("power: bmc-7", "power: bmc-8", "no power driver bmc-8", 14),
    ("    power: vm\n", "", "power-off needs the key power", 16),
    ("    switch: jump\n", "", "power-off needs the key switch at bmc-7", 13),
    ("switch: jump", "switch: worker-9", "must not be a node that may be harmed", 29),
    ("power: script", "power: vm", "the driver of worker-9 has the power of worker-8, too", 20),
    ("driver: fence", "driver: ipmi", "no power driver ipmi; the drivers are fence, libvirt, command", 26),
    ("    driver: fence\n", "", "'driver' is a required property", 26),
    ("agent: fence_redfish", "agent: ./redfish", "the name of a fence agent", 26),
    ("ip: 10.9.0.7", 'ip: "10.9.0.7\\nip=10.9.0.8"', "a text of one line", 26),
    (", domain: worker-8", "", "expected the option domain", 30),
    ("domain: worker-8", "domain: worker-8, url: x", "unknown option url; the options are uri, domain", 30),
    ("BMC_PASSWORD", "BMC", "a name that shows a secret", 28),
    ("BMC_PASSWORD", "hunter-2-x", "the name of an environment variable", 28),
    ("/opt/power", "./power", "have an absolute path", 31),
    ('argv: [/opt/power, "{action}", "{node}"]', "argv: /opt/power", "argv must be a list", 31),
    ("control_plane: true", "control_plane: false", "leave it out", 23),
    ("config: ssh_config", "config: absent", "no such file", 6),
    ("period_s: 2", "period_s: 0", "seconds from 1 to 60", 33),
    ("https://shop", "ftp://shop", "an http or https URL", 35),
    ("url: https://shop.example/healthz", "{}", "expected one of the keys url, command, prometheus", 35),
    ("      query: up == 0\n", "", "expected the key query beside prometheus", 37),
    ("command: [./slo.sh, --strict]", "{command: [./slo.sh], query: up}", "does not belong to command", 36),
    ("Europe/Berlin", "Europe/Bonn", "knows no such time zone", 39),
    ("Europe/Berlin", "../Berlin", "a time zone such as", 39),
    ("Europe/Berlin", "Europe", "knows no such time zone", 39),
    ("[Tue, Wed]", "[Tuesday]", "'Tuesday' is not one of", 39),
    ("16:30", "4:30", "a time such as 09:00", 39),
    ("16:30", "08:59", "to must be later than from", 39),
    ("  alertmanager: https://alerts.example\n", "", "expected one of the keys prometheus, alertmanager", 41),
    ("alertmanager: https:", "alertmanager: alerts:", "an http or https URL", 41),
    ("alertname != Watchdog", "Watchdog", "not a matcher", 42),
    ("alertname != Watchdog", "severity==critical", "not a matcher", 42),
    ("critical|page", "(critical", "not a regular expression", 42),
]


@pytest.mark.parametrize(("before", "after", "message", "line"), BAD, ids=[entry[2] for entry in BAD])
def test_bad_entry_gives_its_line(parse: Parse, before: str, after: str, message: str, line: int) -> None:
    assert before in VALID
    problem = problem_of(parse, VALID.replace(before, after, 1))
    lines = [entry for entry in str(problem).splitlines() if message in entry]
    assert lines, problem
    assert f"cluster.yaml:{line}:" in lines[0]
    assert "correct the inventory" in lines[0]


def test_driver_without_a_command_gives_its_line(parse: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> NoReturn:
        raise KeyError("no outlet")

    monkeypatch.setattr(Libvirt, "command", fail)
    message = str(problem_of(parse, VALID))
    assert "driver libvirt: KeyError('no outlet')" in message
    assert "cluster.yaml:17:12" in message


def test_each_bad_entry_has_its_own_line(parse: Parse) -> None:
    text = VALID.replace("context: prod-eu", "context: 7").replace("[unit-down]", "[storm]")
    assert len(str(problem_of(parse, text)).splitlines()) == 3


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ssl: true", "password: hunter-2-x"),
        ("qemu+ssh://host", "qemu+ssh://admin:hunter-2-x@host"),
        ('"{action}"', "--password=hunter-2-x"),
        ("https://shop", "https://admin:hunter-2-x@shop"),
    ],
)
def test_secret_is_refused_and_not_repeated(parse: Parse, before: str, after: str) -> None:
    problem = problem_of(parse, VALID.replace(before, after, 1))
    assert "must not contain a secret" in problem.what
    assert "hunter" not in str(problem)


@pytest.mark.parametrize("text", ["", "a: *b", "a: 1\na: 2", "[]", "nodes: {}"])
def test_other_yaml_is_a_problem(parse: Parse, text: str) -> None:
    assert "correct the inventory" in str(problem_of(parse, text))


def test_absent_inventory_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="No such file"):
        inventory.read(tmp_path / "absent")


def test_schema_is_valid_and_allows_only_faults_on_nodes() -> None:
    schema = json.loads(Path(inventory.__file__).with_name("inventory.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    names = schema["properties"]["nodes"]["additionalProperties"]["properties"]["may"]["items"]["enum"]
    assert [name for name in names if "node" not in FAULTS[name].places] == []
