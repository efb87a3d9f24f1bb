"""Set-up with an empty cache, the wheel outside a checkout, and `nodeproof doctor` on this machine."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.labs.kinds import KINDS
from nodeproof.report import rundir
from nodeproof.root import become_root, missing_tools
from tests.acceptance.command import TOP, nodeproof
from tests.fakes import executable
from tests.leftovers import host_tables

SET_UP_TIMEOUT_S = 300.0
SSHD = Path("/usr/sbin/sshd")


def set_up(
    environment: Mapping[str, str], *arguments: str, top: Path = TOP, check: bool = True
) -> proc.Result:
    """Run the set-up of a copy of the repository."""
    argv = [str(top / "infra" / "setup.sh"), *arguments]
    return proc.run(argv, timeout_s=SET_UP_TIMEOUT_S, env=environment, check=check)


@pytest.mark.skipif(SSHD.exists(), reason=f"{SSHD} is installed, so none is unpacked")
def test_empty_cache_is_filled_once(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    first = set_up(environment)
    unpacked = tmp_path / "nodeproof" / "sshd" / "usr" / "sbin" / "sshd"
    assert "unpacking sshd" in first.stderr
    assert os.access(unpacked, os.X_OK)
    names = sorted(path.name for path in (tmp_path / "nodeproof").iterdir())
    assert names == [".sshd-compared", "sshd", unpacked.resolve().parents[2].name]

    again = set_up(environment)
    assert (again.stdout, again.stderr) == ("", "")


@pytest.mark.skipif(SSHD.exists(), reason=f"{SSHD} is installed, so none is unpacked")
def test_outdated_sshd_is_replaced_but_stays_for_running_labs(tmp_path: Path) -> None:
    cache = tmp_path / "nodeproof"
    old = cache / "sshd-1:0.1" / "usr" / "sbin" / "sshd"
    executable(old, "exit 1")
    (cache / "sshd").symlink_to("sshd-1:0.1")
    process = set_up({**os.environ, "XDG_CACHE_HOME": str(tmp_path)})
    assert "unpacking sshd" in process.stderr
    assert (cache / "sshd").resolve() != old.parents[2]
    assert old.exists()


def set_up_copy(tmp_path: Path, calls: Path, release: str) -> tuple[Path, dict[str, str]]:
    """Return a copy of the repository whose Python and pip only log their arguments, and its environment.

    `release` is the content of os-release.
    """
    top = tmp_path / "top"
    shutil.copytree(TOP / "infra", top / "infra", ignore=shutil.ignore_patterns("node_modules"))
    for name in ("pyproject.toml", "requirements.lock", "requirements-libvirt.lock"):
        shutil.copy(TOP / name, top / name)
    for name in ("pip", "python"):
        executable(top / ".venv" / "bin" / name, f'echo "$@" >> {calls}')
    environment = {**os.environ, "PATH": f"{tmp_path / 'path'}:{os.environ['PATH']}"}
    (tmp_path / "os-release").write_text(release)
    environment |= {"XDG_CACHE_HOME": str(tmp_path), "OS_RELEASE": str(tmp_path / "os-release")}
    executable(tmp_path / "nodeproof" / "sshd" / "usr" / "sbin" / "sshd", "exit 1")
    (tmp_path / "nodeproof" / ".sshd-compared").touch()
    return top, environment


FEDORA = 'ID=fedora\nVERSION_ID=43\nPRETTY_NAME="Fedora Linux 43"\n'
MINT = 'ID=linuxmint\nID_LIKE="ubuntu debian"\n'
UNKNOWN_DISTRIBUTION = "ID=arch\n"


@pytest.mark.parametrize(
    ("release", "query", "installer", "missing"),
    [
        (FEDORA, "rpm", "dnf", {"iproute", "openssh-server", "util-linux-core"}),
        (MINT, "dpkg-query", "apt-get", {"iproute2", "libwrap0", "mount"}),
    ],
    ids=["fedora", "mint"],
)
def test_missing_packages_have_the_names_of_the_distribution(
    release: str, query: str, installer: str, missing: set[str], tmp_path: Path
) -> None:
    calls, programs = tmp_path / "calls", tmp_path / "path"
    top, environment = set_up_copy(tmp_path, calls, release)
    executable(
        programs / query, f'for name; do :; done; grep -qx "$name" {tmp_path}/installed && echo ok installed'
    )
    executable(programs / installer, f'[ "$1" = download ] || echo {installer} "$@" >>{calls}')
    executable(programs / "systemctl", f'echo systemctl "$@" >>{calls}')
    executable(programs / "sudo", 'while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done; shift; exec "$@"')
    (tmp_path / "installed").touch()

    process = set_up(environment, top=top)

    (line,) = [
        line for line in calls.read_text().splitlines() if line.startswith(installer) and "install" in line
    ]
    assert missing <= set(line.split())
    assert f"installing packages: {line.split('install ')[1]}" in process.stderr
    assert ("systemctl disable --quiet sshd.service" in calls.read_text()) == (installer == "dnf")
    (tmp_path / "installed").write_text("\n".join(line.split()))
    calls.write_text("")
    again = set_up(environment, top=top)
    assert (again.stderr, calls.read_text()) == ("", "")


@pytest.mark.parametrize("lacks", ["", "nft"])
def test_unknown_distribution_needs_programs_and_no_package_manager(lacks: str, tmp_path: Path) -> None:
    calls, programs = tmp_path / "calls", tmp_path / "path"
    top, environment = set_up_copy(tmp_path, calls, UNKNOWN_DISTRIBUTION)
    for folder in environment.pop("PATH").split(os.pathsep):
        for path in Path(folder).glob("*"):
            if path.name not in ("apt-get", "dpkg-query", lacks) and not (programs / path.name).exists():
                programs.mkdir(exist_ok=True)
                (programs / path.name).symlink_to(path)
    for name in ("git", "ip", "make", "mount", "nft", "ssh", "nsenter"):
        if name != lacks and not (programs / name).exists():
            executable(programs / name, "exit 0")
    environment["PATH"] = str(programs)

    process = set_up(environment, top=top, check=False)

    assert process.status == (2 if lacks else 0), process.stderr
    assert ("missing: nft (set-up); install them with your package manager" in process.stderr) == bool(lacks)


def test_outdated_installation_is_reinstalled(tmp_path: Path) -> None:
    """All OS packages are present."""
    calls = tmp_path / "calls"
    top, environment = set_up_copy(tmp_path, calls, "ID=debian\n")
    executable(tmp_path / "path" / "dpkg-query", "echo install ok installed")

    def installed(*arguments: str) -> list[str]:
        """Return the lock files that are installed from."""
        calls.write_text("")
        set_up(environment, *arguments, top=top)
        locks = ("requirements.lock", "requirements-libvirt.lock")
        return [name for name in locks if f"/{name}" in calls.read_text()]

    assert installed() == ["requirements.lock"]
    assert installed() == []
    assert "requirements-libvirt.lock" in installed("libvirt")
    assert installed("libvirt") == []
    lock = top / "requirements-libvirt.lock"
    lock.write_text(lock.read_text().replace("==", "==1"))
    assert installed() == []
    assert "requirements-libvirt.lock" in installed("libvirt")


BUILD_TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel's content, ahead of the checkout on the path."""
    work = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(work), str(TOP)]
    proc.run(build, timeout_s=BUILD_TIMEOUT_S)
    (wheel,) = work.glob("nodeproof-*.whl")
    install = [*pip, "install", "--no-deps", "--target", str(work / "site"), str(wheel)]
    proc.run(install, timeout_s=BUILD_TIMEOUT_S)
    return work / "site"


def _run(installed: Path, cwd: Path, *code: str) -> proc.Result:
    env = {**os.environ, "PYTHONPATH": str(installed)}
    return proc.run([sys.executable, *code], timeout_s=BUILD_TIMEOUT_S, cwd=cwd, env=env, check=False)


def test_shipped_scenarios_are_collected(installed: Path, tmp_path: Path) -> None:
    process = _run(installed, tmp_path, "-m", "nodeproof.cli", "run", "--collect-only", "-q")
    assert process.status == 0, process.stdout
    assert "test_kubelet_renews_its_lease" in process.stdout
    assert not list(tmp_path.iterdir())


def test_recipes_are_in_the_wheel(installed: Path, tmp_path: Path) -> None:
    code = (
        "from nodeproof.artifacts.components import recipe_dir; from nodeproof import catalogue;"
        "print(recipe_dir()); print(catalogue.scenarios_dir()); print(len(catalogue.load()))"
    )
    process = _run(installed, tmp_path, "-c", code)
    recipe, scenarios, claims = process.stdout.split()
    assert Path(recipe).is_relative_to(installed)
    assert (Path(recipe) / "go.mod").exists()
    assert Path(scenarios).is_relative_to(installed)
    assert int(claims) >= 12


def test_csi_driver_starts(installed: Path, tmp_path: Path) -> None:
    process = _run(installed, tmp_path, "-c", "from nodeproof.artifacts import csi; print(csi.python_path())")
    path = Path(process.stdout.strip())
    assert path.is_relative_to(installed)
    options = ["--endpoint=unix:///nowhere/sock", f"--hypervisor=table:{tmp_path / 'table'}"]
    driver = _run(path, tmp_path, "-P", "-m", "infra.csi", *options)
    assert "csi driver: cannot listen at unix:///nowhere/sock" in driver.stderr, driver.stderr


def test_run_outside_a_checkout_leaves_its_verdicts(installed: Path, tmp_path: Path) -> None:
    process = _run(
        installed, tmp_path, "-m", "nodeproof.cli", "run", "--no-site", "-k", "test_defaults or test_default"
    )
    assert process.status == 0, process.stdout + process.stderr
    rows = rundir.read_verdicts(tmp_path / "reports" / "out" / "latest")
    assert {row["code"] for row in rows} == {"scaled"}


@pytest.mark.parametrize("kind", KINDS)
def test_doctor_reports_a_lab_that_starts_here(kind: str, tmp_path: Path) -> None:
    needs = KINDS[kind].host.tools
    if needs and (missing_tools(needs) or find_spec("libvirt") is None):
        pytest.skip("set-up for virtual machines was not run here")

    process = nodeproof("doctor", "--lab", kind, cwd=tmp_path)

    assert process.status == 0, process
    assert f"{kind} lab: can start" in process.stdout
    assert "missing" not in process.stdout


@pytest.mark.alone
def test_doctor_changes_nothing(tmp_path: Path) -> None:
    before = _state()

    nodeproof("doctor", cwd=tmp_path, env={"XDG_CACHE_HOME": str(tmp_path / "cache")})

    assert _state() == before
    assert list(tmp_path.iterdir()) == []


def _state() -> tuple[str, ...]:
    """Return the host's own network and mounts, where a trial outside of namespaces would be visible."""
    links = proc.run([*become_root(), "ip", "-o", "link"], timeout_s=10).stdout
    names = sorted(line.split(":")[1].strip() for line in links.splitlines())
    return host_tables(), *names, Path("/proc/self/mounts").read_text()
