"""Secrets planted in runs, and a search for them in published files."""

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


def _part(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


def _key(kind: str) -> str:
    if kind == "pkcs1":
        key = rsa.generate_private_key(65537, 2048)
        return key.private_bytes(_PEM, serialization.PrivateFormat.TraditionalOpenSSL, _PLAIN).decode()
    formats = {"pkcs8": serialization.PrivateFormat.PKCS8, "openssh": serialization.PrivateFormat.OpenSSH}
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(_PEM, formats[kind], _PLAIN).decode()


KEYS: Mapping[str, str] = {kind: _key(kind) for kind in ("pkcs1", "pkcs8", "openssh")}


def _certificate() -> str:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    first, last = (datetime(year, 1, 1, tzinfo=UTC) for year in (2026, 2027))
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, first, last)
    return builder.sign(key, SHA256()).public_bytes(_PEM).decode()


CERTIFICATE = _certificate()
TOKEN = ".".join(
    (_part({"alg": "RS256", "kid": "x"}), _part({"sub": "system:serviceaccount:a:b"}), "Sig" * 80)
)
"""Like a service account token."""
STATIC = "a1b2c3.d4e5f6g7h8i9j0k1"
"""Like a bootstrap token."""


def recognisable_parts(secret: str) -> list[bytes]:
    """Return parts by which a secret is recognisable: lines of a key, parts of a token."""
    lines = [line for line in re.split(r"[\n.]", secret) if not line.startswith("-----")]
    return [line.encode() for line in lines if len(line) >= _LEAST]


def published(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield the content of every file, and its base64 parts, decoded and decompressed."""
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


def find_secrets(folder: Path, secrets: Mapping[str, str]) -> list[str]:
    """Return which secret is in which file."""
    marks = {name: recognisable_parts(secret) for name, secret in secrets.items()}
    assert all(marks.values())
    return sorted(
        {
            f"{path.relative_to(folder)}: {name}"
            for path, content in published(folder)
            for name, parts in marks.items()
            if any(part in content for part in parts)
        }
    )
