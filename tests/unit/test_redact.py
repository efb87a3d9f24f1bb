"""Redaction: secrets in any context, nothing else, and in linear time."""

from __future__ import annotations

import base64
import gzip
import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeproof import redacted
from nodeproof.model import history, redact
from nodeproof.model.history import Entry
from tests.unit.planted_secrets import CERTIFICATE, KEYS, STATIC, TOKEN, recognisable_parts

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
    "password: |\n", "password: |\n  a\n", "password: |\\n \\n", "<password>", "<password a",
    "<password>a</password>", 'name="password" ',
)  # fmt: skip
ENCODED = base64.b64encode(f"{STATIC} and more".encode()).decode()
RECORDED = Path(__file__).parents[1] / "runs"
HEX = "0123456789abcdef" * 4
EVERYDAY = (
    ("ghp_16C7", "GITHUB_TOKEN=ghp_16C7e42F292c6912E7710c838347Ae178B4a"),
    ("s3cr3t", "DB_PASSWORD: s3cr3tvalue"),
    ("s3cr3t", '{"name":"DB_PASSWORD","value":"s3cr3tvalue"}'),
    ("s3cr3t", '{"name": "password", "value": "s3cr3tvalue"}'),
    ("s3cr3t", "- name: DB_PASSWORD\n  value: s3cr3tvalue"),
    ("abcdef1234", "AUTHORIZATION: BEARER abcdef1234567890"),
    ("abcdefghij", "X-Auth-Token: abcdefghijklmnop"),
    ("AKIAIOSF", "it has AKIAIOSFODNN7EXAMPLE"),
    ("wJalrXUtn", "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("Zm9vYmFy", '"client_secret":"Zm9vYmFyYmF6cXV4"'),
    ("0123456789", "api_key=0123456789abcdef"),
    ("s3cr3t", "passwd=s3cr3tvalue"),
    ("correcthorse", "passphrase: correcthorse"),
    ("0123456789", "kubeadm join 10.0.0.1:6443 --token abcdef.0123456789abcdef"),
    ("0123456789", "bootstrap token abcdef.0123456789abcdef"),
    ("cdefghij", "password=ab,cdefghij"),
    ("cd efgh", 'password="ab cd efgh"'),
    ("yz", r'password="ab\"yz"'),
    ("x9secret", "password=[x9secret"),
    ("secretrest", "password=a;secretrest"),
    ("s3cr3t", "https://:s3cr3t@host/"),
    ("ghp_16C7", "https://ghp_16C7e42F292c6912E7710@github.com/"),
    ("lQOYBF", "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQOYBF0000000000000000000000000000\n"
     "-----END PGP PRIVATE KEY BLOCK-----"),
    ("AAABAQCx", "PuTTY-User-Key-File-2: ssh-rsa\nPrivate-Lines: 14\nAAABAQCx0000000000000000"),
    ("dXNlcjpw", '{"auths":{"r.io":{"auth":"dXNlcjpwYXNzd29yZA=="}}}'),
    ("abcdef1234", "Set-Cookie: session=abcdef1234567890; path=/"),
    ("s3cr3t", "curl -u admin:s3cr3tvalue https://x"),
    ("abcdefghij", "token: abcdefghijklmnop"),
    ("a1b2c3d", "token=a1b2c3d"),
    ("restofthe", "token=a1b2c3:restofthetokenhere"),
    ("abcdefghij", "sig=abcdefghijklmnopqrstuvwx%3D&se=2026"),
    ("s3cr3t", "ipmitool -I lanplus -H 10.0.0.1 -U admin -P s3cr3tvalue chassis power off"),
    ("s3cr3t", '["ipmitool","-H","10.0.0.1","-P","s3cr3tvalue"]'),
    ("s3cr3t", "fence_ipmilan -a 10.0.0.1 -l admin -p s3cr3tvalue -o off"),
    ("s3cr3t", "sshpass -p s3cr3tvalue ssh node-1"),
    ("s3cr3t", "sshpass -ps3cr3tvalue ssh node-1"),
    ("s3cr3t", "--password s3cr3tvalue"),
    ("1a2b3c", f"K3S_TOKEN=K10{HEX}::server:1a2b3c"),
    ("1a2b3c", f"joined by K10{HEX}::server:1a2b3c"),
    (HEX[:20], f"[upload-certs] Using certificate key:\n{HEX}"),
    (HEX[:20], f"kubeadm join 10.0.0.1:6443 --control-plane --certificate-key {HEX}"),
    ("s3cr3t", "ipmitool -H 10.0.0.1 -U admin -Ps3cr3tvalue power off"),
    ("s3cr3t", "racadm -r 10.0.0.1 -u root -p s3cr3tvalue serveraction powerdown"),
    ("SigSig", f'the server has no resource type "Bearer x" in group "{TOKEN.partition(".")[2]}"'),
    ("s3cr3t", "MYSQL_PWD=s3cr3tvalue"),
    ("s3cr3t", "DB_PASS=s3cr3tvalue"),
    ("s3cr3t", "SSHPASS=s3cr3tvalue sshpass -e ssh node-1"),
    ("abcdefghij", "Authorization: token abcdefghijklmnopqrst"),
    ("abcdefghij", "Authorization: ApiKey abcdefghijklmnop1"),
    ("abcdefghij", "it has npm_abcdefghijklmnopqrstuvwxyz0123456789"),
    ("CAESIJabc", "it has hvs.CAESIJabcdefghijklmnopqrst"),
    ("s3cr3t", "password for admin: s3cr3tvalue"),
    ("s3cr3t", "Password for admin is s3cr3tvalue"),
    (STATIC, f"curl -H 'Authorization: Bearer {STATIC}'"),
    (STATIC, f"headers: map[Authorization:[Bearer {STATIC}] Accept:[*/*]]"),
    (STATIC, f'"Authorization": ["Basic {STATIC}"]'),
    (STATIC, f"kubelet --token={STATIC} --v=9"),
    (STATIC, f"users:\n- user:\n    token: {STATIC}\n"),
    (STATIC, f'{{"user": {{"token": "{STATIC}"}}}}'),
    (STATIC, f"https://admin:{STATIC}@registry.example/v2"),
    ("s3cr3t", "password: |\n  s3cr3tvalue\n"),
    ("s3cr3t", "password: >-\n  s3cr3tvalue"),
    ("s3cr3t", "DB_PASSWORD: |2+ # of the database\n\n    s3cr3tvalue\n"),
    ("s3cr3t", "- name: a\n  Password: |\r\n    first\r\n\r\n      s3cr3tvalue\r\n"),
    ("s3cr3t", '  "password": |\n   s3cr3tvalue'),
    ("abcdefgh", "apiToken: >\n  0123456789\n  abcdefgh\n"),
    ("s3cr3t", json.dumps({"a.yaml": 'x:\n  password: |\n    first" \\n line\n\n    s3cr3tvalue\n'})),
    ("s3cr3t", json.dumps(json.dumps({"a": 'password: |\n  first"\n  s3cr3tvalue\n'}))),
    ("s3cr3t", "<password>s3cr3tvalue</password>"),
    ("s3cr3t", "<db:dbPassword kind='plain'>\n  s3cr3tvalue\n</db:dbPassword>"),
    ("s3cr3t", "<PASSWORD><![CDATA[a]s3cr3tvalue]]></PASSWORD>"),
    ("s3cr3t", "&lt;password&gt;s3cr3tvalue&lt;/password&gt;"),
    ("s3cr3t", '<Password value="s3cr3tvalue"/>'),
    ("s3cr3t", "<password type='plain' VALUE = 's3cr3tvalue' />"),
    ("s3cr3t", '<add key="DbPassword" value="s3cr3tvalue"/>'),
    ("s3cr3t", json.dumps('<property name="db.password" value="s3cr3tvalue"/>')),
    ("abcdefgh", "<apiToken>abcdefgh12345678</apiToken>"),
    (ENCODED[:20], f"client-key-data: {ENCODED}"),
)  # fmt: skip
"""A secret, and a text as in logs, environments and command lines."""
HARMLESS = (
    'I1124 headers=< Authorization: Bearer <masked>',
    '{"kind":"Event","metadata":{"name":"node-abc123.18ab34cd56ef7890"}}',
    "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "system:serviceaccounts may not create token requests: serviceaccounts not found",
    'flags: --authorization-mode="Node,RBAC" --service-account-key-file=/run/pki/service-account.key',
    '{"automountServiceAccountToken": false, "continue": ""}',
    "https://10.0.0.1:6443/api/v1/nodes?watch=true and somebody@example.com",
    "found no -----BEGIN in the file, and bearer authentication is on",
    "passwordFile: |\n  /etc/password\nsecret: |\n  a-name\n",
    "token: |\nnot indented, so it is empty",
    "<passwordFile>/etc/password.txt</passwordFile> <password></password> <secretName value='a'/>",
    "<input type=password> a text <b>with</b> elements",
)  # fmt: skip


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("kind", SECRETS)
def test_secret_is_redacted_in_any_context(kind: str, around: str) -> None:
    secret = SECRETS[kind]
    clean = redact.text(f"before\n{AROUND[around](secret)}\nbehind")
    assert clean.startswith("before\n")
    assert clean.endswith("\nbehind")
    assert not [part for part in recognisable_parts(secret) if part.decode() in clean]
    assert NAMED[kind] in clean
    assert "-----" not in clean


@pytest.mark.parametrize("kind", KEYS)
def test_partial_key_is_redacted(kind: str) -> None:
    lines = KEYS[kind].splitlines()
    for half in (lines[:-1], lines[1:], lines[:2]):
        clean = redact.text("I1124 a line of a log\n" + "\n".join(half))
        assert not [line for line in half if len(line) > 40 and line in clean]
        assert redact.KEY in clean


@pytest.mark.parametrize(("secret", "text"), EVERYDAY)
def test_common_secret_is_redacted(secret: str, text: str) -> None:
    """In text, in an observation, and in JSON nested in JSON."""
    clean = redact.text(f"before\n{text}\nbehind")
    assert secret not in clean
    assert "[redacted " in clean
    assert (clean.startswith("before\n"), clean.endswith("\nbehind")) == (True, True)
    assert redact.text(clean) == clean
    assert secret not in json.dumps(redact.value({"observed": {"stdout": text}}))
    within = json.loads(redact.text(json.dumps({"a": json.dumps({"stdout": text})})))
    assert secret not in str(json.loads(within["a"]))


@pytest.mark.parametrize(
    "data",
    [
        {"password": "ab cd, ef", "kept": 1},
        {"data": {"DB_PASSWORD": "s3cr3tvalue"}},
        {"env": [{"name": "DB_PASSWORD", "value": "s3cr3tvalue"}]},
        {"env": [{"value": "s3cr3tvalue", "name": "API_KEY"}]},
        {"argv": ["ipmitool", "-H", "10.0.0.1", "-P", "s3cr3tvalue", "power", "off"]},
        {"argv": ["/usr/sbin/fence_ipmilan", "-p", "s3cr3tvalue"]},
        {"argv": ["sudo", "sshpass", "-p", "s3cr3tvalue", "ssh", "node-1"]},
        {"argv": ["kubeadm", "join", "--token", "s3cr3tvalue"]},
        {"pin": {"passcode": 12345}},
        {"headers": {"X-Auth-Token": ["s3cr3tvalue"]}},
        {"tokens": ["s3cr3tvalue"]},
        {"password": {"value": "s3cr3tvalue"}},
    ],
)  # fmt: skip
def test_value_is_redacted_by_its_key(data: object) -> None:
    clean = json.dumps(redact.value(data))
    assert not [secret for secret in ("s3cr3tvalue", "cd, ef", "12345") if secret in clean]
    assert json.dumps(redact.value(json.loads(clean))) == clean


@pytest.mark.parametrize("data", [None, True, 12345, -1.5e3, {}, [], {"a": None}, "", "a\\", [{"b": 12}, 3]])
@pytest.mark.parametrize("name", ["password", "token", "bindPassword", "clientSecret"])
def test_history_entry_stays_an_entry(name: str, data: object) -> None:
    """An exception here would end the thread of a watch."""
    entry = Entry(1.0, "watch", {"object": {"metadata": {"name": "a"}, "spec": {name: data}}})
    cleaned, line = history.clean(entry)
    assert Entry.from_json(line) == cleaned
    assert json.loads(redact.text(json.dumps({name: data}, separators=(",", ":")))).keys() == {name}


@pytest.mark.parametrize(
    "data",
    [
        '{"password":"a\\\\"}',
        '{"password":-1.5e3,"x":2}',
        '[{"password":12},3]',
        '{"x":{"password":123},"y":[1]}',
        json.dumps({"a": 'password: |\n  fi"rst\\\n  second', "y": [1]}),
        json.dumps({"a": 'password: >-\n\n  "', "y": "  b"}),
        json.dumps({"a": '<password>a"b</password>', "y": '<Password value="a"/>'}),
        # Keys differ between processes, and a test has the same name in all of them.
        *(
            pytest.param(json.dumps({"a": secret, "y": 1}), id=kind)
            for kind, secret in {**KEYS, "token": TOKEN}.items()
        ),
        *(json.dumps({"a": text}) for text in (f"Authorization: Bearer {STATIC}", f"--token={STATIC}")),
    ],
)
@pytest.mark.parametrize("times", [0, 1, 2])
def test_redacted_json_stays_json(data: str, times: int) -> None:
    nested = data
    for _ in range(times):
        nested = json.dumps(nested)
    clean = redact.text(nested)
    for _ in range(times + 1):
        clean = json.loads(clean)
    assert clean != json.loads(data)


def test_block_ends_with_its_indentation() -> None:
    text = "a:\n- user: x\n  password: |\n    first\n\n    second\n\n  host: y\n- b: c\n"
    clean = redact.text(text)
    before, after = text[: text.index("first")], text[text.index("\n\n  host") :]
    assert re.fullmatch(rf"{re.escape(before)}\[redacted password [0-9a-f]{{8}}\]{re.escape(after)}", clean)


def test_equal_secrets_get_equal_placeholders_and_others_differ() -> None:
    one, other, again = (redact.value({"token": f"{letter}bcd12345678"}) for letter in "aba")
    assert one == again != other
    assert redact.text("token: abcd12345678") == redact.text("token: abcd12345678")
    assert redact.text(KEYS["pkcs1"]) != redact.text(KEYS["pkcs8"])


def test_secret_from_the_environment_is_redacted_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_PASSWORD", "correct horse")
    monkeypatch.setenv("SOME_API_TOKEN", "x1y2z3w4")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent/socket")
    monkeypatch.setenv("SHORT_TOKEN", "node-1")
    clean = redact.text("said: correct horse x1y2z3w4 /run/agent/socket node-1")
    assert re.sub(r"\[redacted token [0-9a-f]{8}\]", "*", clean) == "said: * * /run/agent/socket node-1"
    assert "correct" not in history.clean(Entry(1.0, "observed", {"value": "correct horse"}))[1]


@pytest.mark.parametrize(
    "name",
    [
        "automountServiceAccountTokenPath", "tokenExpirationSeconds", "token-auth-file", "secretName",
        "secretRef", "tls-private-key-file", "audience", "author", "authentication-kubeconfig",
        "authorization-mode", "secret", "discovery-token-ca-cert-hash", "passwordFile", "SSH_AUTH_SOCK",
        "key", "imagePullCredentialsVerificationPolicy",
    ],
)  # fmt: skip
def test_name_that_only_mentions_a_secret_redacts_nothing(name: str) -> None:
    assert redact.value({name: "node.kubernetes.io/not-ready"}) == {name: "node.kubernetes.io/not-ready"}
    assert redact.text(f'{name}="kubelet.conf1234"') == f'{name}="kubelet.conf1234"'


RUNS = sorted(RECORDED.glob("*/history.jsonl.gz"))


@pytest.mark.parametrize("run", RUNS, ids=lambda path: path.parent.name)
def test_recorded_cluster_contains_nothing_to_redact(run: Path) -> None:
    with gzip.open(run, "rt") as lines:
        for line in lines:
            entry = Entry.from_json(line)
            assert history.clean(entry)[0].data == entry.data


@pytest.mark.parametrize("kind", SECRETS)
def test_base64_in_secrets_and_kubeconfigs_is_redacted(kind: str) -> None:
    encoded = base64.b64encode(SECRETS[kind].encode()).decode()
    for text in (f'"tls.key": "{encoded}"', f"    client-key-data: {encoded}\n    b: 1"):
        clean = redact.text(text)
        assert encoded[:60] not in clean
        assert encoded[-60:] not in clean


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_is_unchanged(text: str) -> None:
    assert redact.text(text) == text


@given(st.lists(st.sampled_from([*UNITS, *KEYS.values(), TOKEN, "\n", " ", '"', "word"]), max_size=12))
def test_redaction_is_idempotent(parts: list[str]) -> None:
    clean = redact.text("".join(parts))
    assert redact.text(clean) == clean


def test_large_log_is_redacted_at_megabytes_per_second() -> None:
    secret = f"{KEYS['pkcs8']}{TOKEN}\n"
    log = (LOG * (1_000_000 // len(LOG)) + secret) * 10
    began = time.process_time()
    clean = redact.text(log)
    assert time.process_time() - began < 3
    assert clean.count(redact.KEY) == clean.count(redact.TOKEN) == 10
    assert len(clean) > 9_900_000


@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_redaction_time_is_linear(unit: str) -> None:
    """Twice the time for twice the text, not four times, with tolerance for other load."""

    def took_s(length: int) -> float:
        text = unit * (length // len(unit))
        began = time.process_time()
        redact.text(text)
        return time.process_time() - began

    assert took_s(1_000_000) < max(8 * took_s(250_000), 0.5)


def test_tail_that_begins_inside_a_key_is_redacted(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    key = KEYS["pkcs1"]
    log.write_text(f"{key}{LOG}")
    tail = redacted.tail(log, len(LOG) + len(key) // 2)
    assert tail.endswith(LOG)
    assert not [line for line in key.splitlines() if line in tail]
    log.write_text(LOG * 1000)
    assert redacted.tail(log, 100) == (LOG * 1000)[-100:]
    assert redacted.tail(log, 10**9) == LOG * 1000


def test_binary_bytes_are_unchanged(tmp_path: Path) -> None:
    log, target = tmp_path / "a.log", tmp_path / "b.log"
    log.write_bytes(b"\xff\xfe\n" + TOKEN.encode() + b"\n\x80")
    redacted.copy(log, target)
    redacted.in_place(log)
    assert log.read_bytes() == target.read_bytes()
    assert re.fullmatch(rb"\xff\xfe\n\[redacted token [0-9a-f]{8}\]\n\x80", log.read_bytes())
