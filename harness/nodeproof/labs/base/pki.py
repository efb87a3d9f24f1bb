"""A lab's certificate authority and the credentials that it issues; they stay in the lab's folder."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from nodeproof.disk import write_private

_VALID = datetime.timedelta(days=30)
_PEM, _OPENSSH = Encoding.PEM, Encoding.OpenSSH


@dataclass(frozen=True)
class Pair:
    """The paths of a certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """The certificate authority of one lab (EC P-256)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bundle = folder / "ca.crt"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("nodeproof-lab", "")
        self._cert = self._sign(self._name, self._key, x509.BasicConstraints(ca=True, path_length=None))
        folder.mkdir(parents=True, exist_ok=True)
        self.write_bundle(folder)

    def write_bundle(self, folder: Path) -> None:
        """Write the authority's certificate to `folder/ca.crt`."""
        (folder / "ca.crt").write_bytes(self._cert.public_bytes(_PEM))

    def write_pair(self, folder: Path) -> None:
        """Write the authority's certificate and key to `folder/ca.crt` and `folder/ca.key`."""
        folder.mkdir(parents=True)
        self.write_bundle(folder)
        write_private(folder / "ca.key", _pem(self._key))

    def issue(
        self,
        file: str,
        common_name: str,
        organization: str = "",
        hosts: Iterable[str] = (),
        folder: Path | None = None,
    ) -> None:
        """Issue a certificate for a client and, with `hosts`, for a server.

        Args:
            file: base name of the certificate and key files.
            common_name: the subject's common name.
            organization: the subject's organization, if any.
            hosts: names and addresses of the server.
            folder: where the files go; the authority's own folder by default.
        """
        key, pair = ec.generate_private_key(ec.SECP256R1()), pair_in(folder or self.folder, file)
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
        names = [_general_name(host) for host in hosts]
        extensions = [uses, x509.SubjectAlternativeName(names)] if names else [uses]
        certificate = self._sign(_name(common_name, organization), key, *extensions)
        pair.cert.write_bytes(certificate.public_bytes(_PEM))
        write_private(pair.key, _pem(key))

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *extensions: x509.ExtensionType
    ) -> x509.Certificate:
        """Return a certificate of a key."""
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + _VALID)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, isinstance(extension, x509.BasicConstraints))
        return builder.sign(self._key, hashes.SHA256())


def pair_in(folder: Path, file: str) -> Pair:
    """Return the paths of the certificate and key called `file` in `folder`."""
    return Pair(folder / f"{file}.crt", folder / f"{file}.key")


def service_account_pair(folder: Path) -> Pair:
    """Return the paths of the public and the private key that sign service account tokens."""
    return Pair(folder / "service-account.pub", folder / "service-account.key")


def service_account_key(folder: Path) -> None:
    """Create the key pair that signs service account tokens."""
    key, pair = ec.generate_private_key(ec.SECP256R1()), service_account_pair(folder)
    pair.cert.write_bytes(key.public_key().public_bytes(_PEM, PublicFormat.SubjectPublicKeyInfo))
    write_private(pair.key, _pem(key))


def ssh_key(path: Path) -> str:
    """Write an Ed25519 private key in OpenSSH format to `path` and return its public key line."""
    key = ed25519.Ed25519PrivateKey.generate()
    write_private(path, key.private_bytes(_PEM, PrivateFormat.OpenSSH, NoEncryption()))
    return key.public_key().public_bytes(_OPENSSH, PublicFormat.OpenSSH).decode()


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, PrivateFormat.PKCS8, NoEncryption())


def _name(common_name: str, organization: str) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
