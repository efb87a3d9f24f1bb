"""Secrets that are planted where they must not come out, and a search for them in what is published."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256

_PEM = serialization.Encoding.PEM
_PLAIN = serialization.NoEncryption()
_LINES = re.compile(rb"[A-Za-z0-9+/]{24,}={0,2}")
_LEAST = 16


def _part(told: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(told).encode()).decode().rstrip("=")


def _key(kind: str) -> str:
    if kind == "pkcs1":
        made = rsa.generate_private_key(65537, 2048)
        return made.private_bytes(_PEM, serialization.PrivateFormat.TraditionalOpenSSL, _PLAIN).decode()
    formats = {"pkcs8": serialization.PrivateFormat.PKCS8, "openssh": serialization.PrivateFormat.OpenSSH}
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(_PEM, formats[kind], _PLAIN).decode()


KEYS: Mapping[str, str] = {kind: _key(kind) for kind in ("pkcs1", "pkcs8", "openssh")}


def _certificate() -> str:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    first, last = (datetime(year, 1, 1, tzinfo=UTC) for year in (2026, 2027))
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, first, last)
    return made.sign(key, SHA256()).public_bytes(_PEM).decode()


CERTIFICATE = _certificate()
TOKEN = ".".join(
    (_part({"alg": "RS256", "kid": "x"}), _part({"sub": "system:serviceaccount:a:b"}), "Sig" * 80)
)
"""As a service account's."""
STATIC = "a1b2c3.d4e5f6g7h8i9j0k1"
"""As a bootstrap token."""


def kept_of(secret: str) -> list[bytes]:
    """Parts of a secret by which it is known again: the lines of a key, the parts of a token."""
    lines = [line for line in re.split(r"[\n.]", secret) if not line.startswith("-----")]
    return [line.encode() for line in lines if len(line) >= _LEAST]


def published(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """The content of every file, and what is in it as base64, compressed or not."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            yield path, content
            for part in _LINES.findall(content):
                yield from ((path, inside) for inside in _unpacked(part))


def _unpacked(part: bytes) -> Iterator[bytes]:
    try:
        inside = base64.b64decode(part + b"=" * (-len(part) % 4))
    except ValueError:
        return
    yield inside
    for bits in (zlib.MAX_WBITS | 32, -zlib.MAX_WBITS):
        try:
            yield zlib.decompressobj(bits).decompress(inside)
        except zlib.error:
            continue


def found(folder: Path, secrets: Mapping[str, str]) -> list[str]:
    """Which secret is in which file."""
    marks = {name: kept_of(secret) for name, secret in secrets.items()}
    assert all(marks.values())
    return sorted(
        {
            f"{path.relative_to(folder)}: {name}"
            for path, content in published(folder)
            for name, parts in marks.items()
            if any(part in content for part in parts)
        }
    )
