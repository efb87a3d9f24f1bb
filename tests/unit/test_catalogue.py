"""The catalogue: the project's own claims, what is refused and where it is said to be."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeproof import catalogue
from nodeproof.artifacts.components import DEFAULT_KUBERNETES_VERSION
from nodeproof.model.catalogue import DEPTH_LIMIT, SIZE_LIMIT, merge, parse
from nodeproof.model.claim import page_agreement
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import conforms
from nodeproof.model.window import Ground, compute
from nodeproof.session.judging import Judge
from tests.unit.histories import configuration
from tests.vm import (
    test_claims_on_machines,
    test_disks_on_machines,
    test_kubelets_on_machines,
    test_room_on_machines,
    test_shapes_on_machines,
    test_swap_on_machines,
)

ON_MACHINES = (
    test_claims_on_machines,
    test_disks_on_machines,
    test_kubelets_on_machines,
    test_room_on_machines,
    test_shapes_on_machines,
    test_swap_on_machines,
)
SCHEMA: Mapping[str, Any] = json.loads((catalogue.scenarios_dir() / "claims.schema.json").read_text())
CLAIM = """\
- id: cordon.blocks-new-pods
  area: cordon
  statement: A cordoned node receives no new pods from the scheduler.
  kind: behaviour
  subject: control-plane
  versions: ">=1.18"
  page:
    v1.18: true
    v1.28: "moved: elsewhere"
  constants:
    - name: some-constant
      component: kube-scheduler
      reported: Some.Path
      flag: some-flag
      unit: s
      values:
        - { versions: "<1.32", value: 40 }
        - { versions: ">=1.32", value: 50.5 }
      page_value: null
      source: pkg/some.go
  sources: [KEP-1]
"""


def refused(text: str) -> Problem:
    with pytest.raises(Problem) as error:
        parse(text, "f.yaml", SCHEMA)
    return error.value


# The project's own


def test_the_own_claims() -> None:
    claims = catalogue.judged(catalogue.load())
    asked = (
        "import json; from nodeproof.session.coverage import collected; print(json.dumps([*collected()[1]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, timeout=60, check=True
    )
    assert set(json.loads(done.stdout)) == set(claims)
    assert len(claims) == 318
    assert all(claim.id == key and claim.id.split(".")[0] == claim.area for key, claim in claims.items())
    grace = claims["monitoring.grace-period-default"].constants[0]
    assert (grace.at("v1.31.9"), grace.at("v1.32.0"), grace.page_value) == (40.0, 50.0, 40.0)


def test_the_catalogue_takes_every_claim_of_the_page() -> None:
    claims = catalogue.load().values()
    assert len(claims) == 321
    assert Counter(claim.tier for claim in claims) == {"process": 213, "machine": 108}
    assert {claim.id for claim in claims if claim.status in ("cannot", "not-applicable")} == {
        "cordon.load-balancer-removal",
        "swap.limited-cgroup-v1-old",
        "swap.limited-cgroup-v2-old",
    }
    assert all(claim.reason for claim in claims if claim.status in ("cannot", "not-applicable"))
    assert all(claim.measure for claim in claims if claim.status == "planned")


def test_every_claim_that_needs_a_machine_is_made_to_fall_at_night() -> None:
    judged = catalogue.judged(catalogue.load())
    fall = (file.FALL for file in ON_MACHINES)
    assert set().union(*fall) == {name for name, claim in judged.items() if claim.tier == "machine"}


def test_a_claim_that_nobody_judges_is_not_run() -> None:
    claims = catalogue.load()
    assert catalogue.asked_for("cordon.blocks-new-pods", claims).status == "judged"
    planned = replace(claims["cordon.taint"], status="planned")
    with pytest.raises(Problem, match=r"cordon\.taint is planned"):
        catalogue.asked_for("cordon.taint", {**claims, "cordon.taint": planned})
    with pytest.raises(Problem, match=r"load-balancer-removal is not-applicable: true below 1\.19 only"):
        catalogue.asked_for("cordon.load-balancer-removal", claims)


def test_why_a_claim_cannot_be_judged_must_be_said() -> None:
    assert "the key 'reason'" in refused(CLAIM + "  status: cannot\n").what
    (claim,) = parse(CLAIM + "  status: cannot\n  reason: no such machine\n", "f.yaml", SCHEMA)
    assert (claim.status, claim.reason) == ("cannot", "no such machine")


def test_every_default_claim_has_something_to_read() -> None:
    for claim in catalogue.judged(catalogue.load()).values():
        if claim.kind == "default":
            assert all(constant.reported and constant.flag for constant in claim.constants)
            assert claim.constants


def test_a_claim_that_a_scenario_judges_has_no_status() -> None:
    files = (catalogue.scenarios_dir() / "claims").iterdir()
    told = [(path.name, entry["id"]) for path in files for entry in yaml.safe_load(path.read_text())
            if entry.get("status") == "judged"]  # fmt: skip
    assert told == []


def test_every_file_is_named_after_its_area() -> None:
    for path in (catalogue.scenarios_dir() / "claims").iterdir():
        assert {claim.area for claim in parse(path.read_text(), path.name, SCHEMA)} == {path.stem}


def test_the_schema_is_one_and_is_closed() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)

    def closed(part: Any) -> None:
        if isinstance(part, list):
            for entry in part:
                closed(entry)
        if isinstance(part, dict):
            assert part.get("type") != "object" or part["additionalProperties"] is False
            for entry in part.values():
                closed(entry)

    closed(SCHEMA)


def test_a_page_that_is_wrong_is_said_to_differ() -> None:
    """Of a claim with a constant, the constant is compared."""
    claims = [claim for claim in catalogue.load().values() if not claim.constants]
    wrong = [claim for claim in claims if claim.drift.startswith("the page is wrong in every version")]
    assert wrong
    agreements = {
        claim.id: page_agreement(claim, DEFAULT_KUBERNETES_VERSION, conforms("")).agreement for claim in wrong
    }
    assert {name: said for name, said in agreements.items() if said != "differs"} == {}


def test_loading_is_quick() -> None:
    catalogue.load()
    began = time.thread_time()
    catalogue.load()
    assert time.thread_time() - began < 0.5


def test_loading_does_without_the_live_half() -> None:
    code = (
        "import sys; from nodeproof.catalogue import load; load();"
        "sys.exit(bool({'kubernetes', 'paramiko', 'libvirt'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


# Reading


def test_a_claim_is_read_as_it_is_written() -> None:
    (claim,) = parse(CLAIM, "f.yaml", SCHEMA)
    assert (claim.id, claim.area, claim.kind) == ("cordon.blocks-new-pods", "cordon", "behaviour")
    assert claim.page == {"v1.18": True, "v1.28": "moved: elsewhere"}
    assert claim.sources == ("KEP-1",)
    assert claim.drift == ""
    constant = claim.constants[0]
    assert constant.values == (("<1.32", 40.0), (">=1.32", 50.5))
    assert (constant.reported, constant.page_value) == ("Some.Path", None)


@pytest.mark.parametrize(
    ("old", "new", "place", "expected", "found"),
    [
        ("  kind: behaviour\n", "", "1:3", "the key 'kind'", "id, area"),
        ("  area: cordon", "  aria: cordon", "2:3", "a key of id, area", "'aria'"),
        ("kind: behaviour", "kind: habit", "4:9", "one of timing, default, behaviour", "'habit'"),
        ("v1.18: true", "v1.18: 3", "8:12", "true or false or text", "3"),
        ("v1.18: true", "x1.18: true", "8:5", "a key of", "'x1.18'"),
        ("v1.18: true", "v1.18: no", "8:12", "true, false", "'no'"),
        ("sources: [KEP-1]", "sources: []", "21:12", "minItems 1", "a list"),
        ("sources: [KEP-1]", "sources: KEP-1", "21:12", "a list", "'KEP-1'"),
        ("value: 50.5", "value: fifty", "18:40", "a number", "'fifty'"),
        ("value: 50.5", "value: .inf", "18:40", "a plain decimal number", "'.inf'"),
        ("value: 50.5", "value: -1", "18:40", "minimum 0", "-1"),
        ("value: 50.5", "value: 2024-13-45", "18:40", "text in quotes", "'2024-13-45'"),
        ("page_value: null", "page_value: 0x_", "19:19", "a plain decimal number", "'0x_'"),
        ("page_value: null", "page_value: ", "19:18", "", ""),
        ("cordon.blocks-new-pods", "Cordon.x", "1:7", "text like ^[a-z0-9-]", "'Cordon.x'"),
        ("cordon.blocks-new-pods", "cordon", "1:7", "text like", "'cordon'"),
        ("cordon.blocks-new-pods", "a.b.c", "1:7", "text like", "'a.b.c'"),
        ("cordon.blocks-new-pods", '"a.b\\n"', "1:7", "text like", "'a.b\\n'"),
        ('versions: ">=1.18"', 'versions: ">=>"', "6:13", "a range like", "'>=>'"),
        ('versions: ">=1.18"', 'versions: "none"', "6:13", "text like", "'none'"),
        ('versions: ">=1.18"', "versions: 1.18", "6:13", "text", "1.18"),
        ('versions: ">=1.18"', 'versions: ">=2,<1"', "6:13", "a range that holds", "'>=2,<1'"),
        ('versions: "<1.32"', 'versions: "<1.31"', "17:9", "a value for >=1.18", "none for 1.31"),
        ('versions: "<1.32"', 'versions: "<1.33"', "18:23", "each version once", "1.32 again"),
        ("unit: s", "unit: s\n      unit: m", "16:7", "unique keys", "'unit' again"),
        ("unit: s", "unit: !!str s", "15:13", "no tags", "str"),
        ("unit: s", "unit: !foo s", "15:13", "no tags", "!foo"),
        ("unit: s", "unit: &u s", "15:13", "no anchors", "&u"),
        ("unit: s", "unit: *u", "15:13", "the value itself", "*u"),
        ("unit: s", "<<: {unit: s}", "15:7", "a key that is text", "'<<'"),
        ("unit: s", "? [unit]\n      : s", "15:9", "a key that is text", "a list"),
        ("unit: s", "unit: [s", "16:13", "YAML", "a syntax error"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    old: str, new: str, place: str, expected: str, found: str
) -> None:
    assert old in CLAIM
    text = CLAIM.replace(old, new, 1)
    if not expected:
        assert parse(text, "f.yaml", SCHEMA)
        return
    problem = refused(text)
    assert problem.where == f"f.yaml:{place}"
    wanted, got = problem.what.split(", found ", 1)
    assert wanted.startswith(f"expected {expected}") or expected in wanted
    assert found in got


@pytest.mark.parametrize(
    "text",
    ["", "null", "{}", "- 1", "[]", "text", "---\n- 1\n---\n- 2\n", "\x00", "- \ud800", "%YAML 9.9\n--- a"],
)
def test_what_is_no_list_of_claims(text: str) -> None:
    assert refused(text).where.startswith("f.yaml:")


def test_an_id_twice_in_one_file() -> None:
    problem = refused(CLAIM + CLAIM)
    assert (problem.where, "again" in problem.what) == ("f.yaml:22:7", True)


@pytest.mark.parametrize("text", ["[" * 5000, "[" * 5000 + "]" * 5000, "{a: " * 5000, "- " * 5000 + "x"])
def test_deep_nesting_is_refused_at_once(text: str) -> None:
    began = time.thread_time()
    assert f"at most {DEPTH_LIMIT} levels" in refused(text).what
    assert time.thread_time() - began < 1.0


def test_nesting_up_to_the_limit_is_the_schemas_concern() -> None:
    assert "levels" not in refused("[" * DEPTH_LIMIT + "]" * DEPTH_LIMIT).what
    assert "levels" in refused("[" * (DEPTH_LIMIT + 1) + "]" * (DEPTH_LIMIT + 1)).what


def test_too_much_text_is_refused() -> None:
    assert f"at most {SIZE_LIMIT} bytes" in refused("#" * (SIZE_LIMIT + 1)).what
    assert parse(CLAIM + "#" * (SIZE_LIMIT - len(CLAIM)), "f.yaml", SCHEMA)


@given(st.text())
@settings(deadline=None)
def test_any_text_is_refused_or_read(text: str) -> None:
    try:
        parse(text, "f.yaml", SCHEMA)
    except Problem as problem:
        assert problem.where.startswith("f.yaml:")


@given(st.data())
@settings(deadline=None)
def test_any_change_of_a_claim_is_refused_or_read(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(CLAIM)))
    removed = data.draw(st.integers(0, 20))
    inserted = data.draw(st.text(st.sampled_from("[]{}:,-&*!#|>'\"%@` \n\tab1.<=?~"), max_size=8))
    try:
        parse(CLAIM[:at] + inserted + CLAIM[at + removed :], "f.yaml", SCHEMA)
    except Problem as problem:
        assert problem.where.startswith("f.yaml:")


def test_it_works_without_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeproof.model.catalogue._LOADER", yaml.SafeLoader)
    assert parse(CLAIM, "f.yaml", SCHEMA)
    assert "levels" in refused("[" * 5000).what
    assert "control" in refused("\x00").what or "special" in refused("\x00").what


# Several files, folders


def test_files_are_merged_in_order() -> None:
    one = parse(CLAIM, "one", SCHEMA)
    two = parse(CLAIM.replace("blocks-new-pods", "other"), "two", SCHEMA)
    assert list(merge({"one": one, "two": two})) == ["cordon.blocks-new-pods", "cordon.other"]
    with pytest.raises(Problem, match=r"cordon.blocks-new-pods, which is also in one \(three\)"):
        merge({"one": one, "two": two, "three": one})


def test_a_teams_own_claims(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(CLAIM.replace("cordon.blocks-new-pods", "team.own"))
    (tmp_path / "notes.txt").write_text("[" * 100)
    claims = catalogue.load([tmp_path])
    assert list(claims)[-1] == "team.own"
    assert len(claims) == len(catalogue.load()) + 1


def test_a_teams_claim_may_not_replace_one(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(CLAIM)
    with pytest.raises(Problem, match="which is also in"):
        catalogue.load([tmp_path])


def test_folders_that_are_refused(tmp_path: Path) -> None:
    for folder, words in (
        (tmp_path / "none", "no such claims folder"),
        (tmp_path, "folder has no claims"),
        (tmp_path / ".." / tmp_path.name, r"contains \.\."),
    ):
        with pytest.raises(Problem, match=words):
            catalogue.load([folder])


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    folder, outside = tmp_path / "claims", tmp_path / "outside.yaml"
    folder.mkdir()
    outside.write_text(CLAIM.replace("cordon.blocks-new-pods", "team.own"))
    link = folder / "own.yaml"
    for target in (outside, Path("..") / "outside.yaml", tmp_path / "nowhere.yaml"):
        link.symlink_to(target)
        with pytest.raises(Problem, match="not a file inside its folder"):
            catalogue.load([folder])
        link.unlink()
    (folder / "real.yaml").write_text(outside.read_text())
    assert "team.own" in catalogue.load([folder])


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").mkdir()
    with pytest.raises(Problem, match="not a file inside its folder"):
        catalogue.load([tmp_path])


def test_files_that_cannot_be_text(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_bytes(b"- a\n- b\xff\n")
    with pytest.raises(Problem, match=r"expected UTF-8, found byte 0xff .*own.yaml:2:4"):
        catalogue.load([tmp_path])
    path.write_bytes(b"#" * (SIZE_LIMIT + 1))
    with pytest.raises(Problem, match="expected at most"):
        catalogue.load([tmp_path])


def test_looking_a_claim_up() -> None:
    claims = catalogue.load()
    assert catalogue.known("cordon.blocks-new-pods", claims).area == "cordon"
    with pytest.raises(Problem, match=r"use one of: cordon.blocks-new-pods"):
        catalogue.known("cordon.blocks-pods", claims)
    with pytest.raises(Problem, match=r"`nodeproof claims` lists them"):
        catalogue.known("xyz", claims)


def test_the_catalogue_of_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "nodeproof"
    data = package / "_data" / "scenarios"
    data.mkdir(parents=True)
    monkeypatch.setattr(catalogue, "__file__", str(package / "catalogue.py"))
    with pytest.raises(Problem, match="the catalogue is missing"):
        catalogue.scenarios_dir()
    (data / "claims.schema.json").write_text("{}")
    assert catalogue.scenarios_dir() == data


# A window in a claim's YAML


WINDOW = """\
  window: { shape: period, nominal: G, low: G - slack, high: "G + max(P, 1/E) + slack" }
"""


def test_a_claims_window_is_a_formula() -> None:
    (claim,) = parse(CLAIM + WINDOW, "f.yaml", SCHEMA)
    judge = Judge((claim.id,), {claim.id: claim})
    window = compute(judge.window(claim.id), Ground(configuration(), 0.5), {})
    assert (window.low_s, window.high_s, window.nominal_s) == (11.5, 14.5, 12.0)
    assert window.high_arithmetic == "G + max(P, 1/E) + slack (12 + 2 + 0.5)"


def test_a_claim_without_a_window_gives_none() -> None:
    (claim,) = parse(CLAIM, "f.yaml", SCHEMA)
    with pytest.raises(Problem, match="has no window"):
        Judge((claim.id,), {claim.id: claim}).window(claim.id)


@pytest.mark.parametrize(
    ("window", "said"),
    [
        (
            WINDOW.replace("nominal: G", "nominal: Q"),
            "expected symbols of G, P, E, E2, R, S, U, T, slack, found Q",
        ),
        (WINDOW.replace("G - slack", "G -"), "expected a formula"),
        (WINDOW.replace("G - slack", "'__import__(1)'"), "expected text like"),
        (WINDOW.replace("G - slack", "f(G)"), "expected a formula, found not arithmetic: 'f(G)'"),
        (WINDOW.replace("shape: period", "shape: odd"), "expected one of period, within, negative"),
        (WINDOW.replace("nominal: G, ", ""), "the key 'nominal'"),
    ],
)
def test_a_window_that_is_none_is_refused_with_its_place(window: str, said: str) -> None:
    problem = refused(CLAIM + window)
    assert said in problem.what
    assert problem.where.startswith("f.yaml:22:")
