"""The catalogue: shipped claims, refused files, and positions of errors."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeproof import catalogue
from nodeproof.catalogue import DEPTH_LIMIT, SIZE_LIMIT, merge, parse
from nodeproof.model.claim import page_agreement
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import conforms
from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION
from nodeproof.model.window import WindowContext, compute
from nodeproof.session.coverage import collected
from nodeproof.session.judging import Judge
from tests.unit.histories import configuration

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


def test_shipped_claims_are_judged_by_shipped_scenarios() -> None:
    claims = catalogue.load()
    assert set(collected()[1]) == set(catalogue.judged(claims)) != set()
    assert all(claim.id == key and claim.id.split(".")[0] == claim.area for key, claim in claims.items())
    assert all(claim.measure for claim in claims.values() if claim.status == "planned")


def test_unjudged_claim_cannot_be_selected() -> None:
    claims = catalogue.load()
    assert catalogue.find_judged("cordon.blocks-new-pods", claims).status == "judged"
    planned = replace(claims["cordon.taint"], status="planned")
    with pytest.raises(Problem, match=r"cordon\.taint is planned"):
        catalogue.find_judged("cordon.taint", {**claims, "cordon.taint": planned})
    with pytest.raises(Problem, match=r"load-balancer-removal is not-applicable: true below 1\.19 only"):
        catalogue.find_judged("cordon.load-balancer-removal", claims)


def test_unjudgeable_claim_requires_a_reason() -> None:
    assert "'reason' is a required" in refused(CLAIM + "  status: cannot\n").what
    (claim,) = parse(CLAIM + "  status: cannot\n  reason: no such machine\n", "f.yaml", SCHEMA)
    assert (claim.status, claim.reason) == ("cannot", "no such machine")


def test_every_default_claim_names_a_field_and_a_flag() -> None:
    for claim in catalogue.judged(catalogue.load()).values():
        if claim.kind == "default":
            assert all(constant.reported and constant.flag for constant in claim.constants)
            assert claim.constants


def test_every_file_is_named_after_its_area() -> None:
    for path in (catalogue.scenarios_dir() / "claims").iterdir():
        assert {claim.area for claim in parse(path.read_text(), path.name, SCHEMA)} == {path.stem}


def test_schema_is_valid_and_closed() -> None:
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


def test_claim_on_a_wrong_page_differs() -> None:
    """A claim with a constant is compared by the constant."""
    claims = [claim for claim in catalogue.load().values() if not claim.constants]
    wrong = [claim for claim in claims if claim.drift.startswith("the page is wrong in every version")]
    assert wrong
    agreements = {
        claim.id: page_agreement(claim, DEFAULT_KUBERNETES_VERSION, conforms("")).agreement for claim in wrong
    }
    assert {name: agreement for name, agreement in agreements.items() if agreement != "differs"} == {}


# Reading


def test_claim_is_read_as_written() -> None:
    (claim,) = parse(CLAIM, "f.yaml", SCHEMA)
    assert (claim.id, claim.area, claim.kind) == ("cordon.blocks-new-pods", "cordon", "behaviour")
    assert claim.page == {"v1.18": True, "v1.28": "moved: elsewhere"}
    assert claim.sources == ("KEP-1",)
    assert claim.drift == ""
    constant = claim.constants[0]
    assert constant.values == (("<1.32", 40.0), (">=1.32", 50.5))
    assert (constant.reported, constant.page_value) == ("Some.Path", None)


@pytest.mark.parametrize(
    ("old", "new", "place", "reason"),
    [
        ("  kind: behaviour\n", "", "1:3", "'kind' is a required property"),
        ("  area: cordon", "  aria: cordon", "1:3", "'aria' was unexpected"),
        ("kind: behaviour", "kind: habit", "4:9", "'habit' is not one of"),
        ("v1.18: true", "v1.18: 3", "8:12", "3 is not of type 'boolean', 'string'"),
        ("v1.18: true", "x1.18: true", "8:5", "'x1.18' does not match"),
        ("sources: [KEP-1]", "sources: []", "21:12", "should be non-empty"),
        ("sources: [KEP-1]", "sources: KEP-1", "21:12", "'KEP-1' is not of type 'array'"),
        ("value: 50.5", "value: .inf", "18:40", "'.inf' is not of type 'number'"),
        ("value: 50.5", "value: 1:30", "18:40", "'1:30' is not of type 'number'"),
        ("value: 50.5", "value: 010", "18:40", "'010' is not of type 'number'"),
        ("value: 50.5", "value: -1", "18:40", "less than the minimum"),
        ("value: 50.5", "value: 2024-13-45", "18:40", "'2024-13-45' is not of type 'number'"),
        ("cordon.blocks-new-pods", "Cordon.x", "1:7", "'Cordon.x' does not match"),
        ("cordon.blocks-new-pods", '"a.b\\n"', "1:7", "does not match"),
        ('versions: ">=1.18"', 'versions: ">=>"', "6:13", "'>=>' is not a range like"),
        ('versions: ">=1.18"', "versions: 1.18", "6:13", "1.18 is not of type 'string'"),
        ('versions: ">=1.18"', 'versions: ">=2,<1"', "6:13", "includes no version 1.x"),
        ('versions: "<1.32"', 'versions: "<1.31"', "17:9", "no value for 1.31"),
        ('versions: "<1.32"', 'versions: "<1.33"', "18:23", "two values for 1.32"),
        ("unit: s", "unit: s\n      unit: m", "16:7", "'unit' occurs twice"),
        ("unit: s", "unit: !foo s", "15:13", "the tag !foo: leave it out"),
        ("unit: s", "unit: !!int ''", "15:13", "leave it out"),
        ("unit: s", "unit: *u", "15:13", "the alias *u: write the value itself"),
        ("unit: s", "<<: {unit: s}", "11:7", "'<<' was unexpected"),
        ("unit: s", "? [unit]\n      : s", "15:9", "a key that is not text"),
        ("unit: s", "unit: [s", "16:13", "expected ',' or ']'"),
    ],
)
def test_error_is_reported_with_its_position(old: str, new: str, place: str, reason: str) -> None:
    assert old in CLAIM
    problem = refused(CLAIM.replace(old, new, 1))
    assert problem.where == f"f.yaml:{place}"
    assert reason in problem.what


@pytest.mark.parametrize(
    "text",
    ["", "null", "{}", "- 1", "[]", "text", "---\n- 1\n---\n- 2\n", "\x00", "- \ud800", "%YAML 9.9\n--- a"],
)
def test_file_without_a_list_of_claims_is_refused(text: str) -> None:
    assert refused(text).where.startswith("f.yaml:")


def test_duplicate_id_in_one_file_is_refused() -> None:
    problem = refused(CLAIM + CLAIM)
    assert (problem.where, "occurs twice" in problem.what) == ("f.yaml:22:7", True)


def test_allowed_nesting_reaches_the_schema() -> None:
    assert "levels" not in refused("[" * DEPTH_LIMIT + "]" * DEPTH_LIMIT).what
    assert "levels" in refused("[" * (DEPTH_LIMIT + 1) + "]" * (DEPTH_LIMIT + 1)).what


def test_too_much_text_is_refused() -> None:
    assert f"more than {SIZE_LIMIT} bytes" in refused("#" * (SIZE_LIMIT + 1)).what
    assert parse(CLAIM + "#" * (SIZE_LIMIT - len(CLAIM)), "f.yaml", SCHEMA)


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


# Several files, folders


def test_files_are_merged_in_order() -> None:
    one = parse(CLAIM, "one", SCHEMA)
    two = parse(CLAIM.replace("blocks-new-pods", "other"), "two", SCHEMA)
    assert list(merge({"one": one, "two": two})) == ["cordon.blocks-new-pods", "cordon.other"]
    with pytest.raises(Problem, match=r"cordon.blocks-new-pods is also in one \(three\)"):
        merge({"one": one, "two": two, "three": one})


def test_team_claims_are_added_to_the_shipped_ones(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(CLAIM.replace("cordon.blocks-new-pods", "team.own"))
    (tmp_path / "notes.txt").write_text("[" * 100)
    claims = catalogue.load([tmp_path])
    assert list(claims)[-1] == "team.own"
    assert len(claims) == len(catalogue.load()) + 1


def test_invalid_claim_folder_is_refused(tmp_path: Path) -> None:
    for folder, words in (
        (tmp_path / "none", "no such claims folder"),
        (tmp_path, "folder has no claims"),
        (tmp_path / ".." / tmp_path.name, r"contains \.\."),
    ):
        with pytest.raises(Problem, match=words):
            catalogue.load([folder])


def test_link_or_folder_instead_of_a_file_is_refused(tmp_path: Path) -> None:
    folder, outside = tmp_path / "claims", tmp_path / "outside.yaml"
    folder.mkdir()
    outside.write_text(CLAIM.replace("cordon.blocks-new-pods", "team.own"))
    link = folder / "own.yaml"
    for target in (outside, Path("..") / "outside.yaml", tmp_path / "nowhere.yaml", Path("/dev/zero"), link):
        link.symlink_to(target)
        with pytest.raises(Problem, match="not a file inside its folder"):
            catalogue.load([folder])
        link.unlink()
    link.mkdir()
    with pytest.raises(Problem, match="not a file inside its folder"):
        catalogue.load([folder])
    link.rmdir()
    (folder / "real.yaml").write_text(outside.read_text())
    assert "team.own" in catalogue.load([folder])


def test_binary_or_too_large_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_bytes(b"- a\n- b\xff\n")
    with pytest.raises(Problem, match=r"expected UTF-8, found byte 0xff .*own.yaml:2:4"):
        catalogue.load([tmp_path])
    path.write_bytes(b"#" * (SIZE_LIMIT + 1))
    with pytest.raises(Problem, match="expected at most"):
        catalogue.load([tmp_path])


def test_unknown_claim_is_refused_with_similar_ids() -> None:
    claims = catalogue.load()
    assert catalogue.find("cordon.blocks-new-pods", claims).area == "cordon"
    with pytest.raises(Problem, match=r"use one of: cordon.blocks-new-pods"):
        catalogue.find("cordon.blocks-pods", claims)
    with pytest.raises(Problem, match=r"`nodeproof claims` lists them"):
        catalogue.find("xyz", claims)


# A window in a claim's YAML


WINDOW = """\
  window: { shape: period, nominal: G, low: G - slack, high: "G + max(P, 1/E) + slack" }
"""


def test_window_of_a_claim_is_a_formula() -> None:
    (claim,) = parse(CLAIM + WINDOW, "f.yaml", SCHEMA)
    judge = Judge("x.py::test_y", (claim.id,), {claim.id: claim})
    window = compute(judge.window(claim.id), WindowContext(configuration(), 0.5), {})
    assert (window.low_s, window.high_s, window.nominal_s) == (11.5, 14.5, 12.0)
    assert window.high_arithmetic == "G + max(P, 1/E) + slack (12 + 2 + 0.5)"


REPORTED = """\
  reported:
    issue: kubernetes/kubernetes#1
    versions: ">=1.30,<1.40"
    window: { shape: negative, nominal: "3P", low: "0", high: "3P" }
"""


def test_claim_names_the_bug_by_which_it_deviates() -> None:
    (claim,) = parse(CLAIM + REPORTED, "f.yaml", SCHEMA)
    assert claim.reported is not None
    assert claim.reported.url == "https://github.com/kubernetes/kubernetes/issues/1"


def test_claim_without_a_window_has_none() -> None:
    (claim,) = parse(CLAIM, "f.yaml", SCHEMA)
    with pytest.raises(Problem, match="has no window"):
        Judge("x.py::test_y", (claim.id,), {claim.id: claim}).window(claim.id)


SYMBOLS = "unknown symbol Q; the symbols are G, P, E, E2, R, S, U, T, L, D, Y, slack"


@pytest.mark.parametrize(
    ("part", "old", "new", "message"),
    [
        (REPORTED, "kubernetes#1", "kubernetes", "does not match"),
        (REPORTED, ">=1.30,<1.40", "1.30", "is not a range"),
        (REPORTED, 'nominal: "3P"', "nominal: Q", "unknown symbol Q"),
        (WINDOW, "nominal: G", "nominal: Q", SYMBOLS),
        (WINDOW, "G - slack", "G -", "not a formula"),
        (WINDOW, "G - slack", "'__import__(1)'", "does not match"),
        (WINDOW, "G - slack", "f(G)", "not arithmetic: 'f(G)'"),
        (WINDOW, "shape: period", "shape: odd", "'odd' is not one of"),
        (WINDOW, "nominal: G, ", "", "'nominal' is a required property"),
    ],
)
def test_invalid_window_or_report_is_refused_with_its_position(
    part: str, old: str, new: str, message: str
) -> None:
    assert old in part
    problem = refused(CLAIM + part.replace(old, new))
    assert message in problem.what
    assert problem.where.startswith("f.yaml:22:" if part == WINDOW else "f.yaml:2")


# Malicious files are refused at once, with their position, and without effect

REFUSAL_TIMEOUT_S = 1.0
BOMB = "\n".join(f"a{level + 1}: &a{level + 1} [{', '.join([f'*a{level}'] * 9)}]" for level in range(9))
HOSTILE = {
    "alias bomb": f"a0: &a0 [x, x]\n{BOMB}\n",
    "aliases": "- &a\n  id: cordon.one\n- *a\n",
    "duplicate keys": "- id: cordon.one\n  area: cordon\n  area: monitoring\n",
    "a path for a name": "- id: ../../etc/passwd\n  area: cordon\n",
    "shell metacharacters": "- id: cordon.$(touch /tmp/nodeproof-was-here);`id`|x\n  area: cordon\n",
    "5,000 levels": "- " * 5000 + "x\n",
    "5,000 brackets": "[" * 5000,
    "5,000 closed brackets": "[" * 5000 + "]" * 5000,
    "5,000 braces": "{a: " * 5000,
    "an object of Python's": "- !!python/object/apply:os.system [touch /tmp/nodeproof-was-here]\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_is_refused_with_file_line_and_column(name: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.yaml"
    path.write_text(HOSTILE[name])
    began = time.thread_time()
    with pytest.raises(Problem) as caught:
        catalogue.load([tmp_path])
    assert time.thread_time() - began < REFUSAL_TIMEOUT_S
    file, line, column = caught.value.where.rsplit(":", 2)
    assert (file, line.isdigit(), column.isdigit()) == (str(path), True, True)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert not Path("/tmp/nodeproof-was-here").exists()
