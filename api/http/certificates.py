"""Self-signed certificates for webhooks and the visibility API, for clusters without a certificate issuer.

A certificate authority (ten years) signs a leaf certificate (one year), ECDSA P-256, 8 ms for both. Each is
renewed after two thirds of its lifetime. After a renewal of the authority, the former one stays in the
bundle that clients trust for the lifetime of one leaf, because leaves that it signed are still served.
Everything here is a value; the caller decides where it is stored (a Secret) and how often it is checked
(once a day is sufficient).
"""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
LEAF_DAYS = 365

# Clocks in a cluster differ, so a certificate is valid from shortly before its creation.
_BACKDATED = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Authority, leaf and trust; `trusted` is the PEM bundle for clients, the current authority first."""

    authority: KeyPair
    leaf: KeyPair
    trusted: bytes

    def to_secret(self) -> dict[str, bytes]:
        """Return the data of a Secret, under the keys that cert-manager uses, plus `ca.key`."""
        return {
            "tls.crt": self.leaf.certificate,
            "tls.key": self.leaf.key,
            "ca.crt": self.trusted,
            "ca.key": self.authority.key,
        }


def certificates_of_secret(data: Mapping[str, bytes]) -> Certificates | None:
    """Return the certificates in a Secret, or None if they are missing, truncated or inconsistent."""
    try:
        trusted = x509.load_pem_x509_certificates(data["ca.crt"])
        found = Certificates(
            authority=KeyPair(certificate=_pem(trusted[0]), key=data["ca.key"]),
            leaf=KeyPair(certificate=data["tls.crt"], key=data["tls.key"]),
            trusted=data["ca.crt"],
        )
        # Inconsistent parts are useless, because every client would reject them.
        _check(found, trusted)
    except (KeyError, IndexError, TypeError, ValueError):
        return None
    return found


def renewed(there: Certificates | None, names: Sequence[str], *, now: float) -> Certificates:
    """Return certificates for a server with these DNS names and addresses that are valid at `now`.

    Returns `there` itself if no renewal is due. A new authority signs a new leaf in the same step only if it
    must: clients first learn to trust the authority, and the leaf is renewed when it is due itself.
    """
    if there is None:
        authority = make_authority(now=now)
        leaf = make_leaf(authority, names, now=now)
        return Certificates(authority=authority, leaf=leaf, trusted=authority.certificate)
    if now >= renewal_at(there.authority.certificate):
        authority = make_authority(now=now)
        # Both are trusted for as long as a replica that has not renewed may serve a leaf
        # of the former authority.
        trusted = authority.certificate + there.authority.certificate
        there = replace(there, authority=authority, trusted=trusted)
        # Only if the leaf has expired, because clients do not know the new authority yet.
        is_leaf_due = now >= _end(there.leaf.certificate)
    else:
        there = _without_former_authority(there, now)
        is_leaf_due = now >= renewal_at(there.leaf.certificate)
    if is_leaf_due or set(names) != names_of(there.leaf.certificate):
        there = replace(there, leaf=make_leaf(there.authority, names, now=now))
    return there


def renewal_at(certificate: bytes) -> float:
    """Return the time (Unix seconds) after two thirds of the certificate's lifetime."""
    read = x509.load_pem_x509_certificate(certificate)
    begins, ends = read.not_valid_before_utc.timestamp(), read.not_valid_after_utc.timestamp()
    return begins + (ends - begins) * 2 / 3


def names_of(certificate: bytes) -> set[str]:
    """Return the DNS names and addresses that the certificate is valid for."""
    read = x509.load_pem_x509_certificate(certificate)
    names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    return {*names.get_values_for_type(x509.DNSName), *addresses}


def make_authority(*, now: float) -> KeyPair:
    """Return a new authority, which can only sign leaf certificates."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "berth")])
    certificate = (
        _unsigned(name, name, key.public_key(), now=now, days=AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(certificate=_pem(certificate), key=_key_pem(key))


def make_leaf(authority: KeyPair, names: Sequence[str], *, now: float) -> KeyPair:
    """Return a server certificate for these DNS names and IP addresses, signed by the authority."""
    if not names:
        raise ValueError("a server's certificate needs a name")
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signer = serialization.load_pem_private_key(authority.key, password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    # A common name has at most 64 characters, and clients no longer evaluate it.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    certificate = (
        _unsigned(subject, issuer.subject, key.public_key(), now=now, days=LEAF_DAYS)
        .add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(signer, hashes.SHA256())
    )
    return KeyPair(certificate=_pem(certificate), key=_key_pem(key))


class ServingTls:
    """TLS of a server whose certificate, and whose clients' authority, can be replaced while it serves.

    `context` is that of new connections; existing ones keep the one that they began with.
    """

    def __init__(self, pair: KeyPair) -> None:
        self._pair = pair
        self._clients: tuple[str, ssl.VerifyMode] | None = None
        self.context = self._made()

    def load(self, pair: KeyPair) -> None:
        """Serve this certificate from now on.

        Raises ValueError if key and certificate do not match; then the previous certificate stays in use.
        """
        former, self._pair = self._pair, pair
        try:
            self.context = self._made()
        except ValueError:
            self._pair = former
            raise

    def accept_clients(self, authority: str, *, is_required: bool) -> None:
        """Accept certificates that this authority (PEM) has signed, and no others, from now on.

        Unless `is_required`, clients without a certificate are accepted, too.
        """
        self._clients = (authority, ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL)
        self.context = self._made()

    def _made(self) -> ssl.SSLContext:
        """Return a new context: an authority cannot be taken out of one."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        _load_pair(context, self._pair)
        if self._clients is not None:
            authority, mode = self._clients
            context.load_verify_locations(cadata=authority)
            context.verify_mode = mode
        return context


def _load_pair(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Let a context show this certificate. Raises ValueError if key and certificate do not match."""
    # ssl loads certificates only from files; this directory is private and is deleted immediately.
    with tempfile.TemporaryDirectory(prefix="berth-") as directory:
        chain = Path(directory, "serving.pem")
        chain.touch(mode=0o600)
        chain.write_bytes(pair.certificate.rstrip() + b"\n" + pair.key)
        try:
            context.load_cert_chain(chain)
        except ssl.SSLError as error:
            raise ValueError(f"the certificate cannot be served: {error}") from error


def key_pair_of_files(certificate: Path, key: Path) -> KeyPair:
    """Return the certificate and key in two PEM files, for example from a mounted Secret. Raises OSError."""
    return KeyPair(certificate=certificate.read_bytes(), key=key.read_bytes())


def _without_former_authority(there: Certificates, now: float) -> Certificates:
    """Stop trusting the former authority after every leaf that it can have signed has expired."""
    read = x509.load_pem_x509_certificate(there.authority.certificate)
    made_at = (read.not_valid_before_utc + _BACKDATED).timestamp()
    is_over = now >= made_at + timedelta(days=LEAF_DAYS).total_seconds()
    if not is_over or there.trusted == there.authority.certificate:
        return there
    return replace(there, trusted=there.authority.certificate)


def _end(certificate: bytes) -> float:
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp()


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, now: float, days: int
) -> x509.CertificateBuilder:
    at = datetime.fromtimestamp(now, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - _BACKDATED)
        .not_valid_after(at + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _check(found: Certificates, trusted: Sequence[x509.Certificate]) -> None:
    """Raise ValueError if the parts do not belong together."""
    leaf = x509.load_pem_x509_certificate(found.leaf.certificate)
    if not any(_is_signed_by(leaf, authority) for authority in trusted):
        raise ValueError("none of the trusted authorities has signed the leaf")
    for pair in (found.leaf, found.authority):
        key = serialization.load_pem_private_key(pair.key, password=None)
        if key.public_key() != x509.load_pem_x509_certificate(pair.certificate).public_key():
            raise ValueError("the key is another certificate's")


def _is_signed_by(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
