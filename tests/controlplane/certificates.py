"""The keys and certificates of one test cluster: an authority, the API server's own, the token signer's.

Made for each control plane, on P-256 because that takes a millisecond, and never used again.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Paths of PEM files in the control plane's folder."""

    authority: Path
    server_certificate: Path
    server_key: Path
    service_account_key: Path


def write_certificates(folder: Path) -> Certificates:
    """Make and write all keys and certificates of one control plane; they are good for a day."""
    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _certificate("Berth test authority", authority_key, None, authority_key)
    server = _certificate("kube-apiserver", server_key, authority, authority_key)
    paths = Certificates(
        authority=folder / "ca.crt",
        server_certificate=folder / "apiserver.crt",
        server_key=folder / "apiserver.key",
        service_account_key=folder / "service-account.key",
    )
    paths.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    paths.server_certificate.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    _write_key(paths.server_key, server_key)
    _write_key(paths.service_account_key, ec.generate_private_key(ec.SECP256R1()))
    return paths


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
    )
    builder = _with_authority_usage(builder) if issuer is None else _with_server_usage(builder)
    return builder.sign(issuer_key, hashes.SHA256())


def _with_authority_usage(builder: x509.CertificateBuilder) -> x509.CertificateBuilder:
    # Python 3.13's default context refuses an authority that does not say it may sign certificates.
    may_not = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    usage = x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **may_not)
    return builder.add_extension(usage, critical=True)


def _with_server_usage(builder: x509.CertificateBuilder) -> x509.CertificateBuilder:
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in _NAMES]
    names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    return builder.add_extension(x509.SubjectAlternativeName(names), critical=False).add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
    )


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    # kube-apiserver reads a token signer's EC key in this form only, not as PKCS #8.
    form = serialization.PrivateFormat.TraditionalOpenSSL
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    path.chmod(0o600)
