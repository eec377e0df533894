"""Keys and certificates of one control plane: an authority, and a certificate for each who speaks or is spoken to."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS = 2


class Authority:
    """Signs certificates; its own one and all keys lie in ``folder`` (``ca.crt``, ``<name>.crt``, ``<name>.key``)."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder = folder
        self.certificate = folder / "ca.crt"
        self.key = folder / "ca.key"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        made = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self._write(self.certificate, self.key, made, self._key)

    def issue(
        self, file: str, common_name: str, *, groups: Sequence[str] = (), addresses: Sequence[str] = ()
    ) -> tuple[Path, Path]:
        """A certificate and its key, for a client and for a server at ``addresses`` (IP addresses and host names)."""
        key = ec.generate_private_key(ec.SECP256R1())
        of = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*of, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        builder = _builder(subject, self._name, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        of_ours = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(of_ours, critical=False)
        if addresses:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_name(one) for one in addresses]), critical=False
            )
        paths = self.folder / f"{file}.crt", self.folder / f"{file}.key"
        self._write(*paths, builder.sign(self._key, hashes.SHA256()), key)
        return paths

    def _write(self, certificate: Path, key: Path, made: x509.Certificate, secret: ec.EllipticCurvePrivateKey) -> None:
        certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        write_key(key, secret)


def signing_key(folder: Path) -> tuple[Path, Path]:
    """A private and a public key, for the tokens of ServiceAccounts."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = ec.generate_private_key(ec.SECP256R1())
    private, public = folder / "service-accounts.key", folder / "service-accounts.pub"
    write_key(private, key)
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """The private key as PEM, readable by its owner only."""
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=DAYS))
    )


def _name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)
