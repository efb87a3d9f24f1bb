"""Secrets are taken out of texts, whatever is around them; nothing else is, and it does not take long."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeproof import redacted
from nodeproof.model import redact
from tests.unit.secrets_told import CERTIFICATE, KEYS, STATIC, TOKEN, kept_of

STAMP = "Nov 24 23:29:45.123456 node-1 kubelet[123]: "
NAMED = dict.fromkeys(KEYS, redact.KEY) | {"certificate": redact.CERTIFICATE, "token": redact.TOKEN}
SECRETS: Mapping[str, str] = {**KEYS, "certificate": CERTIFICATE, "token": TOKEN}
AROUND: Mapping[str, Callable[[str], str]] = {
    "alone": str,
    "in a line": lambda secret: f"E1124 it is {secret} there",
    "in JSON": lambda secret: json.dumps({"a": secret, "b": 1}),
    "in JSON in JSON": lambda secret: json.dumps({"a": json.dumps({"b": secret})}),
    "indented": lambda secret: "config: |\n" + "".join(f"    {line}\n" for line in secret.splitlines()),
    "in a journal": lambda secret: "".join(f"{STAMP}{line}\n" for line in f"it is\n{secret}".splitlines()),
    "with carriage returns": lambda secret: secret.replace("\n", "\r\n"),
}
LOG = (
    'I1124 23:29:45.123456   12345 round_trippers.go:632] "Response" verb="GET" '
    'url="https://10.0.0.1:6443/api/v1/nodes/node-17?resourceVersion=0" status="200 OK" token: headers=<\n'
)
UNITS = (
    LOG, "eyJ", "eyJabcdef.", "-----BEGIN PRIVATE KEY-----\n", "-----END PRIVATE KEY-----", "A" * 64 + "\n",
    "-----BEGIN PRIVATE KEY-----\n Nov 24 a b c d e f g h i j " + "A" * 16 + "!\n", "LS0tLS1CRUdJTi ", "ZXlK",
    "Bearer aaaaaaaaaaaaaaaa", "earer a", "token: a", "--token ", "password=", "://a:b", "\n \n",
    "-----BEGIN PRIVATE KEY-----\n\n\n     ", "-----BEGIN PRIVATE KEY-----" + "A" * 64 + "\\n",
)  # fmt: skip
KEEPS = (
    'I1124 headers=< Authorization: Bearer <masked>',
    '{"kind":"Event","metadata":{"name":"node-abc123.18ab34cd56ef7890"}}',
    "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "system:serviceaccounts may not create token requests: serviceaccounts not found",
    'flags: --authorization-mode="Node,RBAC" --service-account-key-file=/run/pki/service-account.key',
    '{"automountServiceAccountToken": false, "continue": ""}',
    "https://10.0.0.1:6443/api/v1/nodes?watch=true and somebody@example.com",
    "found no -----BEGIN in the file, and bearer authentication is on",
)  # fmt: skip


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_is_taken_out_whatever_is_around_it(kind: str, around: str) -> None:
    secret = SECRETS[kind]
    clean = redact.text(f"before\n{AROUND[around](secret)}\nbehind")
    assert clean.startswith("before\n")
    assert clean.endswith("\nbehind")
    assert not [part for part in kept_of(secret) if part.decode() in clean]
    assert NAMED[kind] in clean
    assert "-----" not in clean


@pytest.mark.parametrize("around", ["in JSON", "in JSON in JSON"])
def test_json_stays_json(around: str) -> None:
    for secret in (*KEYS.values(), TOKEN, f"Authorization: Bearer {STATIC}", f"--token={STATIC}"):
        clean = json.loads(redact.text(AROUND[around](secret)))
        assert "redacted" in str(clean)
        assert clean.keys() <= {"a", "b"}


@pytest.mark.parametrize("kind", KEYS)
def test_half_a_key_is_taken_out_as_well(kind: str) -> None:
    lines = KEYS[kind].splitlines()
    for half in (lines[:-1], lines[1:], lines[:2]):
        clean = redact.text("I1124 a line of a log\n" + "\n".join(half))
        assert not [line for line in half if len(line) > 40 and line in clean]
        assert redact.KEY in clean


@pytest.mark.parametrize(
    "told",
    [
        f"curl -H 'Authorization: Bearer {STATIC}'",
        f'headers: map[Authorization:[Bearer {STATIC}] Accept:[*/*]]',
        f'"Authorization": ["Basic {STATIC}"]',
        f"kubelet --token={STATIC} --v=9",
        f"kubeadm join 10.0.0.1:6443 --token {STATIC}",
        f"users:\n- user:\n    token: {STATIC}\n",
        f'{{"user": {{"token": "{STATIC}"}}}}',
        f"https://admin:{STATIC}@registry.example/v2",
        f"password={STATIC}",
        "client-key-data: " + base64.b64encode(f"{STATIC} and more".encode()).decode(),
    ],
)  # fmt: skip
def test_what_a_header_a_flag_or_a_kubeconfig_says_is_taken_out(told: str) -> None:
    clean = redact.text(told)
    assert STATIC not in clean
    assert base64.b64encode(STATIC.encode()).decode()[:20] not in clean
    assert "[redacted" in clean


@pytest.mark.parametrize("kind", SECRETS)
def test_what_a_secret_object_or_a_kubeconfig_has_as_base64_is_taken_out(kind: str) -> None:
    encoded = base64.b64encode(SECRETS[kind].encode()).decode()
    for told in (f'"tls.key": "{encoded}"', f"    client-key-data: {encoded}\n    b: 1"):
        clean = redact.text(told)
        assert encoded[:60] not in clean
        assert encoded[-60:] not in clean


def test_a_certificate_is_taken_out() -> None:
    block = f"-----BEGIN CERTIFICATE-----\n{'MIIBfake' * 8}\nQUJD\n-----END CERTIFICATE-----\n"
    assert redact.text(f"a\n{block}b") == f"a\n{redact.CERTIFICATE}\nb"


@pytest.mark.parametrize("told", KEEPS)
def test_what_is_no_secret_stays(told: str) -> None:
    assert redact.text(told) == told


@given(st.lists(st.sampled_from([*UNITS, *KEYS.values(), TOKEN, "\n", " ", '"', "word"]), max_size=12))
def test_taking_out_twice_is_taking_out_once(parts: list[str]) -> None:
    clean = redact.text("".join(parts))
    assert redact.text(clean) == clean


def test_a_log_of_a_hundred_megabytes_takes_seconds() -> None:
    secret = f"{KEYS['pkcs8']}{TOKEN}\n"
    log = (LOG * (10_000_000 // len(LOG)) + secret) * 10
    began = time.process_time()
    clean = redact.text(log)
    assert time.process_time() - began < 30
    assert clean.count(redact.KEY) == clean.count(redact.TOKEN) == 10
    assert len(clean) > 99_000_000


@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_no_text_takes_more_than_its_length(unit: str) -> None:
    """Twice the time for twice the text, not four times: with room for what else the machine does."""

    def took_s(length: int) -> float:
        given = unit * (length // len(unit))
        began = time.process_time()
        redact.text(given)
        return time.process_time() - began

    assert took_s(1_000_000) < max(8 * took_s(250_000), 0.5)


def test_a_tail_that_begins_inside_a_key_is_clean(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    key = KEYS["pkcs1"]
    log.write_text(f"{key}{LOG}")
    tail = redacted.tail(log, len(LOG) + len(key) // 2)
    assert tail.endswith(LOG)
    assert not [line for line in key.splitlines() if line in tail]
    log.write_text(LOG * 1000)
    assert redacted.tail(log, 100) == (LOG * 1000)[-100:]
    assert redacted.tail(log, 10**9) == LOG * 1000


def test_bytes_that_are_no_text_stay(tmp_path: Path) -> None:
    log, target = tmp_path / "a.log", tmp_path / "b.log"
    log.write_bytes(b"\xff\xfe\n" + TOKEN.encode() + b"\n\x80")
    redacted.copy(log, target)
    redacted.in_place(log)
    assert log.read_bytes() == target.read_bytes() == b"\xff\xfe\n[redacted token]\n\x80"
