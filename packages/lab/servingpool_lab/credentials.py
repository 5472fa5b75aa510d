"""Keys, certificates and kubeconfigs of a local cluster. Loopback use only."""

import datetime as dt
import ipaddress
import json
import os
import tempfile
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = dt.timedelta(days=30)
# Certificates are valid from a little before now, for clocks that disagree.
_CLOCK_SKEW = dt.timedelta(minutes=5)


def write_private(path: Path, content: bytes) -> Path:
    """Write a file that only its owner can read, at once: whoever reads it meanwhile has the one before."""
    descriptor, new = tempfile.mkstemp(prefix=path.name, dir=path.parent)  # readable by its owner only
    with os.fdopen(descriptor, "wb") as handle:
        handle.write(content)
    Path(new).replace(path)
    return path


def new_private_key() -> ec.EllipticCurvePrivateKey:
    """A P-256 key: as good as RSA here and made in a millisecond."""
    return ec.generate_private_key(ec.SECP256R1())


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """`key` as PEM, in the encoding that kube-apiserver takes for service-account keys."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes


class CertificateAuthority:
    """Signs the API server's certificate and those of users."""

    def __init__(self, kept: Identity | None = None) -> None:
        """A new one, or the one that was `kept`."""
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "servingpool-lab")])
        if kept is not None:
            key = serialization.load_pem_private_key(kept.key, None)
            assert isinstance(key, ec.EllipticCurvePrivateKey)
            self._key, self._certificate = key, x509.load_pem_x509_certificate(kept.certificate)
            return
        self._key = new_private_key()
        self._certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> bytes:
        """The authority's own certificate, PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key(self) -> bytes:
        """Its private key, PEM."""
        return private_pem(self._key)

    def issue_server(self, names: list[str], addresses: list[str]) -> Identity:
        """An identity for a server reached by any of `names` or IP `addresses`."""
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(a)) for a in addresses]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        return self._issue(subject, ExtendedKeyUsageOID.SERVER_AUTH, x509.SubjectAlternativeName(alternatives))

    def issue_user(self, user: str, groups: list[str]) -> Identity:
        """An identity that kube-apiserver maps to `user` in `groups`."""
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        return self._issue(x509.Name(attributes), ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _issue(
        self,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        alternatives: x509.SubjectAlternativeName | None,
    ) -> Identity:
        key = new_private_key()
        builder = (
            self._builder(subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Identity(certificate.public_bytes(serialization.Encoding.PEM), private_pem(key))

    def _builder(self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        # Python 3.13 verifies strictly: it wants both key identifiers.
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SKEW)
            .not_valid_after(now + _LIFETIME)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def write_kubeconfig(
    path: Path,
    server: str,
    authority: bytes,
    *,
    token: str | None = None,
    identity: Identity | None = None,
    namespace: str = "default",
) -> Path:
    """Write a self-contained kubeconfig with one context.

    Args:
        path: the file to write; readable by its owner only.
        server: URL of kube-apiserver.
        authority: PEM certificate that signed the server's.
        token: bearer token, or
        identity: client certificate.
        namespace: default namespace of the context.

    Returns:
        `path`, absolute: a relative one would be resolved against a child's working directory.
    """
    user: dict[str, Any] = {}
    if token is not None:
        user["token"] = token
    if identity is not None:
        user["client-certificate-data"] = b64encode(identity.certificate).decode()
        user["client-key-data"] = b64encode(identity.key).decode()
    cluster = {"server": server, "certificate-authority-data": b64encode(authority).decode()}
    context = {"cluster": "lab", "user": "lab", "namespace": namespace}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "lab", "user": user}],
        "contexts": [{"name": "lab", "context": context}],
        "current-context": "lab",
    }
    # JSON is YAML, and needs no quoting rules.
    return write_private(path.absolute(), json.dumps(document, indent=1).encode())
