"""Address of the API server, credentials and namespace: from a kubeconfig, or from a pod's service account.

Plain users are read here, for the `kubernetes` package takes a quarter of a second of CPU to import. That package does
the rest: users with a program that gives credentials (`exec`), rare ones, and tokens to be renewed (`client`).
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from servingpool.adapters.cluster.errors import ClusterError

DEFAULT = "~/.kube/config"
DEFAULT_NAMESPACE = "default"
"""Of a context that names none, as for kubectl."""
NO_FILE = f"file {DEFAULT} does not exist. Give --kubeconfig FILE, or set KUBECONFIG"
ACTING = "Impersonate-User"
"""Header that names whom a request acts as."""
_acting: dict[str, str] = {}
IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Token, authority and namespace of a pod's service account."""
PLAIN = frozenset(
    {"client-certificate", "client-certificate-data", "client-key", "client-key-data", "token", "tokenFile"}
)
"""Fields of a user that are read here."""
Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Credentials:
    """Address of the API server, and our credentials for it."""

    server: str
    """URL."""
    verified: bool
    """Whether the server's certificate is checked."""
    authority: str | None
    """Path of the certificates to trust."""
    authorization: str | None
    """Value of the header: scheme and token."""
    certificate: str | None
    """Path of the client's certificate."""
    key: str | None
    """Path of its private key."""
    proxy: str | None
    server_name: str | None = None
    """Name that the server's certificate has, where it is not that of the URL."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A kubeconfig's context with what it names; paths are absolute."""

    path: str
    """Path of the kubeconfig, or several paths as KUBECONFIG has them."""
    name: str
    context: Entry
    cluster: Entry
    user: Entry

    @property
    def namespace(self) -> str:
        """Namespace that is meant where none is given."""
        return str(self.context.get("namespace") or DEFAULT_NAMESPACE)


def act_as(user: str | None) -> None:
    """Every connection that this process opens from now on acts as this user, as with kubectl's --as."""
    _acting.clear()
    if user:
        _acting[ACTING] = user


def acting() -> dict[str, str]:
    """The header that says whom this process acts as; empty where as itself."""
    return dict(_acting)


def unusable(what: str) -> ClusterError:
    """Credentials that cannot be used, with the reason."""
    return ClusterError(f"Cannot read the cluster's credentials: {what}")


def choose(kubeconfig: str | None, context: str | None) -> Chosen | None:
    """The context of this name, or the current context. None where no kubeconfig exists and none is asked for.

    ClusterError where a kubeconfig that is asked for is not there, or says nothing that can be used.
    """
    path, files = _files(kubeconfig)
    if not files:
        if kubeconfig or os.environ.get("KUBECONFIG") or context:
            raise unusable(f"file {path} does not exist. Give --kubeconfig FILE, or set KUBECONFIG")
        return None
    try:
        return _choose(path, files, context)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise unusable(f"{path} is no kubeconfig ({type(error).__name__})") from error
    except (AttributeError, KeyError, TypeError) as error:
        raise unusable(f"{path} is no kubeconfig: a part of it is missing ({error})") from error


def _choose(path: str, files: list[Path], context: str | None) -> Chosen:
    current = ""
    found: dict[str, dict[str, Entry]] = {"contexts": {}, "clusters": {}, "users": {}}
    for file in files:
        read = _read(file)
        current = current or read.get("current-context") or ""
        for kind, known in found.items():
            for each in read.get(kind) or ():
                known.setdefault(each["name"], _absolute(each.get(kind[:-1]) or {}, file.parent))
    name = context or current
    if name not in found["contexts"]:
        wrong = f"has no context '{name}'" if name else "names no current-context"
        raise unusable(f"{path} {wrong}. Choose one of `kubectl config get-contexts` with --context")
    one = found["contexts"][name]
    if one.get("cluster") not in found["clusters"]:
        raise unusable(f"{path} has no cluster '{one.get('cluster')}', which context '{name}' names")
    return Chosen(path, name, one, found["clusters"][one["cluster"]], found["users"].get(one.get("user", ""), {}))


def contexts(kubeconfig: str | None) -> list[str]:
    """Names of the contexts. ClusterError as `choose`."""
    found = (each["name"] for file in _files(kubeconfig)[1] for each in _read(file).get("contexts") or ())
    return list(dict.fromkeys(map(str, found)))


def _files(kubeconfig: str | None) -> tuple[str, list[Path]]:
    """The path that is given or meant, and the files of it that exist."""
    path = kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT
    return path, [file for each in path.split(os.pathsep) if each and (file := Path(each).expanduser()).is_file()]


def _read(file: Path) -> Entry:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(file.read_bytes(), Loader=loader) or {}  # noqa: S506, both are safe


def namespace_of(kubeconfig: str | None, context: str | None) -> str | None:
    """The namespace of the context, in a pod without a kubeconfig that of the pod; None where there is neither."""
    chosen = choose(kubeconfig, context)
    if chosen is not None:
        return chosen.namespace
    try:
        return (IN_POD / "namespace").read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


@contextmanager
def credentials_of(kubeconfig: str | None, context: str | None) -> Iterator[tuple[Credentials, str]]:
    """Credentials, and the namespace that is meant. Files that hold them last as long as the `with` block.

    ClusterError where there are none.
    """
    chosen = choose(kubeconfig, context)
    if chosen is None:
        yield _of_pod(), namespace_of(None, None) or DEFAULT_NAMESPACE
    elif not chosen.user.keys() <= PLAIN:
        yield _by_client(chosen), chosen.namespace
    else:
        with tempfile.TemporaryDirectory(prefix="servingpool-") as folder:
            yield _plain(chosen, Path(folder)), chosen.namespace


def trust(found: Credentials) -> ssl.SSLContext | None:
    """How to speak TLS to that server; None where it does not. ClusterError where a certificate or key is unusable.

    As kubectl does it: a certificate need not name its issuer's key.
    """
    if not found.server.lower().startswith("https:"):
        return None
    try:
        made = ssl.create_default_context(cafile=found.authority)
        made.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        if not found.verified:
            made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
        if found.certificate is not None:
            made.load_cert_chain(found.certificate, found.key)
    except (OSError, ValueError) as error:
        raise unusable(f"a certificate or key cannot be used ({getattr(error, 'strerror', None) or error})") from error
    return made if found.server_name is None else _named(made, found.server_name)


def _named(made: ssl.SSLContext, name: str) -> ssl.SSLContext:
    """A context for a server whose certificate has another name than its URL."""
    wrap = made.wrap_socket

    def wrapped(*given: Any, **named: Any) -> ssl.SSLSocket:
        return wrap(*given, **{**named, "server_hostname": name})

    made.wrap_socket = wrapped  # type: ignore[method-assign]
    return made


def credentials_in(settings: Any, authorization: str | None) -> Credentials:
    """Credentials in a Configuration of the `kubernetes` package."""
    return Credentials(
        server=settings.host,
        verified=settings.verify_ssl,
        authority=settings.ssl_ca_cert,
        authorization=authorization,
        certificate=settings.cert_file,
        key=settings.key_file,
        proxy=settings.proxy,
        server_name=settings.tls_server_name,
    )


def _plain(chosen: Chosen, folder: Path) -> Credentials:
    cluster, user = chosen.cluster, chosen.user
    token = user.get("token")
    if token is None and (file := user.get("tokenFile")) is not None:
        try:
            token = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise unusable(f"{file} cannot be read") from error
    return Credentials(
        server=str(cluster.get("server") or "http://localhost:8080").rstrip("/"),
        verified=not cluster.get("insecure-skip-tls-verify"),
        authority=_file(cluster, "certificate-authority", folder),
        authorization=None if token is None else f"Bearer {token}",
        certificate=_file(user, "client-certificate", folder),
        key=_file(user, "client-key", folder),
        proxy=cluster.get("proxy-url"),
        server_name=cluster.get("tls-server-name"),
    )


def _by_client(chosen: Chosen) -> Credentials:
    """Credentials as the Kubernetes client finds them, with a program that renews a token."""
    from kubernetes.client import Configuration  # noqa: PLC0415, rare and slow
    from kubernetes.config import ConfigException, kube_config  # noqa: PLC0415

    settings = Configuration()
    try:
        kube_config.load_kube_config(chosen.path, context=chosen.name, client_configuration=settings)
    except (ConfigException, OSError, ValueError) as error:
        raise unusable(f"context '{chosen.name}' gives none: {error}") from error
    program, authorization = chosen.user.get("exec"), settings.get_api_key_with_prefix("BearerToken", "authorization")
    if program and authorization is None and settings.cert_file is None:
        raise unusable(f"the program '{program.get('command')}' of context '{chosen.name}' gives none. Try it by hand")
    return credentials_in(settings, authorization)


def _of_pod() -> Credentials:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    token = IN_POD / "token"
    if not host or not port or not token.is_file():
        raise unusable(NO_FILE)
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    bare = Credentials(server, True, str(IN_POD / "ca.crt"), None, None, None, None)
    return replace(bare, authorization=f"Bearer {token.read_text(encoding='utf-8').strip()}")


def _absolute(entry: Entry, folder: Path) -> Entry:
    """The kubeconfig with absolute paths, for a file of this folder."""
    paths = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
    return {**entry, **{name: str(folder / entry[name]) for name in paths if entry.get(name)}}


def _file(entry: Mapping[str, Any], name: str, folder: Path) -> str | None:
    """Path of what an entry holds as a path, or as data."""
    data = entry.get(f"{name}-data")
    if not data:
        return entry.get(name)
    path = folder / name
    try:
        path.write_bytes(base64.b64decode(data, validate=True))
    except (binascii.Error, TypeError) as error:
        raise unusable(f"{name}-data is no base64") from error
    return str(path)
