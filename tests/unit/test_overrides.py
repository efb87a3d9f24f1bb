"""Settings of a user: parsed, tried on executables before a lab starts, and given to its components."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof.artifacts.components import ROLES, Component, Components
from nodeproof.cluster import workloads
from nodeproof.labs.base import control_plane
from nodeproof.labs.base.nodes import kubelet_configuration
from nodeproof.labs.base.processes import refusal
from nodeproof.labs.base.profiles import FAST
from nodeproof.labs.base.spec import LabSpec, NodeSpec
from nodeproof.labs.client import starting
from nodeproof.labs.kinds import LIBVIRT, PROCESS
from nodeproof.labs.kinds.kind import Kind
from nodeproof.machines.machine import Machine
from nodeproof.model.overrides import COMPONENTS, NO_OVERRIDES, Overrides, parse, suffix
from nodeproof.model.problem import Problem
from tests.fakes import FakeMachine, executable, fake_lab

NODE = NodeSpec("node-1", 0, "zone-a", "0" * 32)
PORT = "invalid configuration: port (--port) -1 must be between 1 and 65535, inclusive"
FLAGS = r"""
case "$*" in
    *Unknown=*) echo 'E1 run.go:72] "command failed" err="unrecognized feature gate: Unknown"' >&2; exit 1 ;;
    *Locked=*) echo 'E1 run.go:72] "command failed" err="cannot set Locked to true"' >&2; exit 1 ;;
    *--nonsense=*) echo 'Error: unknown flag: --nonsense' >&2; exit 1 ;;
esac
case "$*" in *--version | *--write-config-to=*) ;; *) exit 1 ;; esac
"""
"""A control plane component that knows every gate but one."""
CONTROLLER = f"""case "$*" in
    *OnlyHere=*) ;;
    *feature-gates*) echo 'panic: unrecognized feature gate: A' >&2; exit 1 ;;
esac
{FLAGS}"""
FIELDS = rf"""
read -r file
case "$file" in
    *Unknown*) echo 'panic: unrecognized feature gate: Unknown' >&2; exit 2 ;;
    *maxPodz*) echo 'I1 codec.go] "lenient" err="strict decoding error: unknown field \"maxPodz\""' >&2 ;;
    *'"maxPods": "x"'*) echo 'E1 run.go] "command failed" err="json: cannot unmarshal \"x\""' >&2; exit 1 ;;
    *'"maxPods": -1'*) invalid='invalid configuration: maxPods must not be negative, ' ;;
esac
echo "E1 run.go:72] \"command failed\" err=\"not valid: [${{invalid}}{PORT}], path: /dev/stdin\"" >&2
exit 1
"""


@pytest.fixture
def components(tmp_path: Path) -> Components:
    """Return executables that take and refuse settings in the words of Kubernetes."""
    scripts = dict.fromkeys(ROLES, FLAGS) | dict.fromkeys(("kubelet", "hollow-kubelet"), FIELDS)
    paths = {role: executable(tmp_path / role, script) for role, script in scripts.items()}
    by_role = {role: Component(role, path, "v1.36.3", "0", "supplied") for role, path in paths.items()}
    return Components("v1.36.3", by_role, True)


def spec(overrides: Overrides) -> LabSpec:
    paths = {role: {"path": role} for role in ROLES}
    ids = (os.getuid(), os.getgid())
    return LabSpec(
        "p-000000", *ids, "v1.36.3", paths, True, "", "fast", (NODE,), False, "process", overrides=overrides
    )


def test_options_are_parsed() -> None:
    overrides = parse(
        ["A=true,B=false", "C=true"],
        ["kubelet.maxPods=50", "kubelet.evictionHard={}", "kubelet.syncFrequency=5s", "etcd.name=a.b=c"],
    )
    assert overrides.gates == {"A": True, "B": False, "C": True}
    fields = {"maxPods": 50, "evictionHard": {}, "syncFrequency": "5s"}
    assert overrides.settings == {"kubelet": fields, "etcd": {"name": "a.b=c"}}
    assert parse([], []) == NO_OVERRIDES


@pytest.mark.parametrize(
    ("gates", "settings", "message"),
    [
        (["A"], [], r"'A' is not a feature gate \(--feature-gates\); use NAME=true or NAME=false"),
        (["A=yes"], [], "'A=yes' is not a feature gate"),
        (["A=true,"], [], "'' is not a feature gate"),
        ([], ["maxPods=50"], r"invalid setting 'maxPods=50' \(--set\); use COMPONENT.FLAG=VALUE"),
        ([], ["kubelet.maxPods"], "invalid setting"),
        ([], ["kubectl.v=4"], "invalid setting .* are etcd, kube-apiserver"),
        ([], ["kubelet.--v=4"], "invalid setting"),
        ([], ["kubelet.memorySwap.swapBehavior=NoSwap"], "invalid setting .* or kubelet.FIELD=VALUE"),
    ],
)
def test_malformed_option_is_refused(gates: Sequence[str], settings: Sequence[str], message: str) -> None:
    with pytest.raises(Problem, match=message) as refused:
        parse(gates, settings)
    assert "\n" not in str(refused.value)


def test_texts_distinguish_runs() -> None:
    overrides = parse(["B=false,A=true"], ["kubelet.maxPods=50"])
    texts = ("--feature-gates A=true", "--feature-gates B=false", "--set kubelet.maxPods=50")
    assert overrides.texts == parse(["A=true,B=false"], ["kubelet.maxPods=50"]).texts == texts
    assert suffix(overrides.texts) != suffix(parse(["A=true"], []).texts)
    assert suffix(NO_OVERRIDES.texts) == ""


@pytest.mark.parametrize("kind", [PROCESS, LIBVIRT], ids=lambda kind: kind.name)
def test_gates_go_to_the_components_that_know_them(components: Components, kind: Kind) -> None:
    executable(components.path("kube-scheduler"), CONTROLLER)
    overrides = starting.dry_run(parse(["A=true"], ["kubelet.maxPods=50"]), components, kind, FAST)
    knowing = [component for component in COMPONENTS if overrides.of(component)]
    assert knowing == [component for component in COMPONENTS if component != "kube-scheduler"]
    assert overrides.of("kube-apiserver") == {"feature-gates": "A=true"}
    assert overrides.of("kubelet") == {"maxPods": 50, "featureGates": {"A": True}}


def test_gates_of_one_component_are_kept_beside_those_of_all(components: Components) -> None:
    own = ["kube-proxy.feature-gates=B=true", 'kubelet.featureGates={"B": true}']
    overrides = starting.dry_run(parse(["A=true"], own), components, PROCESS, FAST)
    assert overrides.of("kube-proxy") == {"feature-gates": "B=true,A=true"}
    assert overrides.of("kubelet") == {"featureGates": {"B": True, "A": True}}


@pytest.mark.parametrize("kind", [PROCESS, LIBVIRT], ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    ("gates", "settings", "message"),
    [
        (["Unknown=true,A=true"], [], "no component of Kubernetes v1.36.3 knows the feature gate Unknown "),
        (["Locked=true"], [], "etcd refuses its settings: cannot set Locked to true "),
        ([], ["kube-proxy.nonsense=1"], "kube-proxy refuses its settings: unknown flag: --nonsense "),
        ([], ["kubelet.maxPodz=1"], "kubelet refuses .*: KubeletConfiguration has no field maxPodz "),
        ([], ["kubelet.maxPods=x"], 'kubelet refuses its settings: json: cannot unmarshal "x" '),
        ([], ["kubelet.maxPods=-1"], "kubelet refuses its .*: maxPods must not be negative "),
        ([], ['kubelet.featureGates={"Unknown": true}'], "unrecognized feature gate: Unknown "),
    ],
)  # fmt: skip
def test_refused_setting_is_one_line_with_the_words_of_the_component(
    components: Components, kind: Kind, gates: Sequence[str], settings: Sequence[str], message: str
) -> None:
    with pytest.raises(Problem, match=rf"{message}\(--feature-gates") as refused:
        starting.dry_run(parse(gates, settings), components, kind, FAST)
    assert "\n" not in str(refused.value)
    assert "port" not in str(refused.value)


def test_settings_of_foreign_components_are_refused(components: Components) -> None:
    foreign = replace(PROCESS, name="existing", connect=lambda _name: pytest.fail("connected"))
    with pytest.raises(Problem, match="not started by nodeproof"):
        starting.dry_run(parse(["A=true"], []), components, foreign, FAST)


def test_flag_of_the_user_replaces_that_of_the_lab(tmp_path: Path) -> None:
    overrides = parse([], ["etcd.unsafe-no-fsync=false", "etcd.heartbeat-interval=7"])
    argv = control_plane.etcd(spec(overrides), tmp_path)
    assert [option for option in argv if "fsync" in option] == ["--unsafe-no-fsync=false"]
    assert "--heartbeat-interval=7" in argv


def test_field_of_the_user_replaces_that_of_the_profile_but_not_of_a_node() -> None:
    overrides = parse([], ["kubelet.nodeLeaseDurationSeconds=20", "kubelet.maxPods=50"])
    node = replace(NODE, kubelet={"maxPods": 3})
    fields = kubelet_configuration(spec(overrides), node, Path("/etc/kubernetes"), PROCESS.kubelet())
    assert (fields["nodeLeaseDurationSeconds"], fields["maxPods"]) == (20, 3)


@pytest.mark.parametrize(
    ("setting", "configure"),
    [
        ("etcd.data-dir=/", lambda lab: control_plane.etcd(lab, Path("/data"))),
        ("kubelet.port=1", lambda lab: kubelet_configuration(lab, NODE, Path("/etc/kubernetes"), {})),
    ],
)
def test_own_setting_of_the_lab_is_refused(setting: str, configure: Callable[[LabSpec], object]) -> None:
    component, name = setting.partition("=")[0].split(".")
    with pytest.raises(Problem, match=f"a lab sets {name} of {component} itself"):
        configure(spec(parse([], [setting])))


def test_settings_are_listed_with_those_of_the_lab() -> None:
    overrides = replace(
        parse(["A=true"], ["kube-controller-manager.node-monitor-period=2s", "kubelet.maxPods=50"]),
        known_gates={"kube-scheduler": ["A"]},
    )
    settings = PROCESS.settings(FAST, overrides)
    assert {"kube-scheduler feature-gates=A=true", "kubelet maxPods=50"} <= {*settings}
    periods = [setting for setting in settings if "node-monitor-period" in setting]
    assert periods == ["kube-controller-manager node-monitor-period=2s"]
    assert {*PROCESS.settings(FAST)} - {*settings} == {"kube-controller-manager node-monitor-period=1s"}


def test_spec_keeps_the_settings_on_its_way_to_the_supervisor() -> None:
    lab = spec(replace(parse(["A=true"], ["kubelet.maxPods=50"]), known_gates={"kubelet": ["A"]}))
    assert LabSpec.from_json(lab.to_json()) == lab


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ('I1 a.go:1] "ready"\nE1 run.go:72] "command failed" err="no \\"x\\" here"\n', 'no "x" here'),
        ("Usage:\n  kubelet\n\nError: unknown flag: --x\n", "unknown flag: --x"),
        ("panic: no gate\n\ngoroutine 1 [running]:\nmain.main()\n", "no gate"),
        ('invalid value "x" for flag -y\nUsage:\n', 'invalid value "x" for flag -y'),
        ('I1 a.go:1] "ready"\n', ""),
        ("", ""),
    ],
)
def test_reason_of_a_component_is_found_in_its_log(log: str, reason: str) -> None:
    assert refusal(log) == reason


JOURNAL = 'E1 run.go:72] "command failed" err="no static policy without reserved CPUs"\n'


@pytest.mark.parametrize(("journal", "ends"), [(JOURNAL, True), ("", False)])
def test_failing_kubelet_ends_the_start(monkeypatch: pytest.MonkeyPatch, journal: str, ends: bool) -> None:
    def unready(_api: object, names: Sequence[str]) -> Mapping[str, str]:
        return dict.fromkeys(names, "no Node")

    monkeypatch.setattr(workloads, "not_ready", unready)

    def machine(_name: str) -> Machine:
        return FakeMachine(lambda _command: journal)  # type: ignore[return-value]

    lab = fake_lab({"features": {"systemd"}, "name": "l-000000", "fleet.machine": machine})
    if ends:
        with pytest.raises(Problem, match="kubelet of node-1 does not start: no static policy"):
            starting._unready(lab, None, ["node-1"])  # type: ignore[arg-type]
    else:
        assert starting._unready(lab, None, ["node-1"]) == {"node-1": "no Node"}  # type: ignore[arg-type]
