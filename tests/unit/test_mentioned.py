"""Commands that the prose of README and docs names: there is each, and one that is made up is found out."""

from __future__ import annotations

import sys

import pytest

from nodeproof import proc
from tests.documented import REASONS, TOP, name
from tests.mentioned import WRITTEN, mentions, options, wrong

README = TOP / "README.md"


@pytest.fixture(scope="module")
def of_pytest() -> frozenset[str]:
    """What pytest knows with the plugin, and with what tests/contract adds."""
    asked = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--help", "tests/contract")
    return options(proc.run(asked, timeout_s=240.0, cwd=TOP).stdout)


def test_prose_names_only_commands_that_there_are(of_pytest: frozenset[str]) -> None:
    said = [(page, command) for page in WRITTEN for command in mentions(page.read_text())]
    assert len(said) > 80
    assert {"README.md", "CONTRIBUTING.md", "infra/image/README.md"} <= {name(page) for page, _said in said}
    faults = [f"{name(page)}: {command}: {wrong(command, page, of_pytest)}" for page, command in said]
    assert [fault for fault in faults if not fault.endswith(": ")] == []


def test_blocks_that_no_test_runs_name_only_what_there_is(of_pytest: frozenset[str]) -> None:
    said = [command for text in REASONS for command in mentions(f"`{text}`")]
    assert {"make setup", "nodeproof up --nodes 3 --zones 2"} <= set(said)
    assert {command: wrong(command, README, of_pytest) for command in said} == dict.fromkeys(said, "")


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("nodeproof frobnicate", "no command frobnicate"),
        ("nodeproof --frobnicate", "no option --frobnicate"),
        ("nodeproof doctor --claim a.b", "no option --claim"),
        ("nodeproof run --no-such-option", "no option --no-such-option"),
        ("up --no-such-option", "no option --no-such-option"),
        ("nodeproof run --claim cordon.frobnicate", "no claim cordon.frobnicate"),
        ("python -m tests.sensitivity frobnicate", "no bug frobnicate"),
        ("make nothing", "no target nothing"),
        ("make run NOTHING=1", "no variable NOTHING"),
        ('make run ARGS="--no-such-option"', "no option --no-such-option"),
        ("soak NOTHING=1", "no variable NOTHING"),
        ("pytest --no-such-option", "no option --no-such-option"),
        ("pytest tests/contract/test_nothing.py", "no tests/contract/test_nothing.py"),
        ("pytest tests/contract/test_fault.py -k frobnicate", "nothing for -k frobnicate"),
        ("python -m tests.nothing", "no module tests.nothing"),
        ("python -m tests.freeze --no-such-option", "no option --no-such-option"),
        ("infra/nothing.sh", "no script infra/nothing.sh"),
        ("infra/setup.sh frobnicate", "infra/setup.sh knows no frobnicate"),
    ],
)
def test_what_is_made_up_is_found_out(said: str, fault: str, of_pytest: frozenset[str]) -> None:
    assert list(mentions(f"Then call `{said}`, or\n`.venv/bin/{said}`.")) == [said, said]
    assert wrong(said, README, of_pytest) == fault


@pytest.mark.parametrize(
    "said",
    [
        "make run LAB=libvirt",
        'make run ARGS="-k cordon --nodes 4"',
        "nodeproof doctor --lab libvirt",
        "nodeproof --version",
        "nodeproof run -n 3 --claim cordon.taint --no-site",
        "nodeproof shell node-1 -- nft --json list ruleset",
        "pytest --contract-lab=libvirt tests/contract/test_fault.py -k freeze",
        "infra/setup.sh vagrant",
    ],
)
def test_what_there_is_passes(said: str, of_pytest: frozenset[str]) -> None:
    assert wrong(said, README, of_pytest) == ""


def test_only_prose_is_read() -> None:
    blocks = "    x `make nothing`\n\n```\n`make nothing`\n```"
    text = f"`kubectl get --watch`, `nodeproof`\n\n{blocks}\n\n`make run\nLAB=process`"
    assert list(mentions(text)) == ["make run LAB=process"]
