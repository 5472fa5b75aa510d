"""Address of the API server, credentials and namespace: from a kubeconfig, or from a pod's service account.

The `kubernetes` package reads the credentials, and runs the program that gives them (`exec`). One `Login` serves the
operator's requests, kopf's watches and the commands, so that proxies, certificates and tokens are the same for all.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies

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
Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A kubeconfig's context with what it names."""

    path: str
    """Path of the kubeconfig, or several paths as KUBECONFIG has them."""
    name: str
    context: Entry
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
                known.setdefault(each["name"], each.get(kind[:-1]) or {})
    name = context or current
    if name not in found["contexts"]:
        wrong = f"has no context '{name}'" if name else "names no current-context"
        raise unusable(f"{path} {wrong}. Choose one of `kubectl config get-contexts` with --context")
    one = found["contexts"][name]
    if one.get("cluster") not in found["clusters"]:
        raise unusable(f"{path} has no cluster '{one.get('cluster')}', which context '{name}' names")
    return Chosen(path, name, one, found["users"].get(one.get("user", ""), {}))


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


class Login:
    """An API server, how to reach it, and who we are to it."""

    def __init__(self, kubeconfig: str | None, context: str | None = None) -> None:
        """By a kubeconfig and one of its contexts, else `~/.kube/config`, else the service account. ClusterError."""
        self._chosen = choose(kubeconfig, context)
        self._settings = settings = self._loaded()
        self.server: str = settings.host.rstrip("/")
        """URL."""
        self.namespace = namespace_of(kubeconfig, context) or DEFAULT_NAMESPACE
        """Namespace that is meant where none is given."""
        self.proxy: str | None = settings.proxy or proxy_of(urlsplit(self.server))
        """URL of the proxy; None where the server is asked directly."""
        self.trust = _trust(settings)
        """How to speak TLS to the server; None where it does not."""

    def authorization(self, *, anew: bool = False) -> str | None:
        """The header's value: scheme and token. A file is read or a program is run where the token is about to end.

        `anew`: the server refused the last one, so the credentials are read from the beginning. ClusterError.
        """
        from kubernetes.config import ConfigException  # noqa: PLC0415, slow

        if anew:
            self._settings = self._loaded()
        try:
            found: str | None = self._settings.get_api_key_with_prefix("BearerToken")
        except (ConfigException, OSError, ValueError) as error:
            raise unusable(str(error)) from error
        program = None if self._chosen is None else self._chosen.user.get("exec")
        if program and found is None and self._settings.cert_file is None:
            raise unusable(f"the program '{program.get('command')}' gives none. Try it by hand")
        return None if found is None else found.strip()

    def _loaded(self) -> Any:
        from kubernetes.client import Configuration  # noqa: PLC0415, slow: --help waits for none
        from kubernetes.config import ConfigException, load_kube_config  # noqa: PLC0415
        from kubernetes.config.incluster_config import InClusterConfigLoader  # noqa: PLC0415

        settings = Configuration()
        settings.proxy = None  # that of the environment: `proxy_of` looks at NO_PROXY too
        try:
            if self._chosen is None:
                InClusterConfigLoader(IN_POD / "token", IN_POD / "ca.crt").load_and_set(settings)
            else:  # by name: with several files the client takes the last one's context
                load_kube_config(self._chosen.path, self._chosen.name, client_configuration=settings)
        except (ConfigException, AttributeError, OSError, TypeError, ValueError) as error:
            raise unusable(NO_FILE if self._chosen is None else f"context '{self._chosen.name}': {error}") from error
        return settings


def _trust(settings: Any) -> ssl.SSLContext | None:
    """As kubectl does it: a certificate need not name its issuer's key. ClusterError where one is unusable."""
    if not settings.host.lower().startswith("https:"):
        return None
    made = _Named(ssl.PROTOCOL_TLS_CLIENT)
    made.name = settings.tls_server_name
    made.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    try:
        if not settings.verify_ssl:
            made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
        elif settings.ssl_ca_cert:
            made.load_verify_locations(settings.ssl_ca_cert)
        else:
            made.load_default_certs()
        if settings.cert_file is not None:
            made.load_cert_chain(settings.cert_file, settings.key_file)
    except (OSError, ValueError) as error:
        raise unusable(f"a certificate or key cannot be used ({getattr(error, 'strerror', None) or error})") from error
    return made


class _Named(ssl.SSLContext):
    """For a server whose certificate may have another name than its URL."""

    name: str | None = None

    def wrap_socket(self, *given: Any, **named: Any) -> ssl.SSLSocket:
        return super().wrap_socket(*given, **self._by_name(named))

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        return super().wrap_bio(*given, **self._by_name(named))

    def _by_name(self, named: dict[str, Any]) -> dict[str, Any]:
        return named if self.name is None else {**named, "server_hostname": self.name}


def proxy_of(server: SplitResult) -> str | None:
    """The proxy of the environment, such as HTTPS_PROXY, unless the server is excepted.

    As client-go: this machine is, and what NO_PROXY names: hosts and domains with all below them, addresses and
    networks, each perhaps with a port.
    """
    proxies, host = getproxies(), str(server.hostname)
    excepted = filter(None, (each.strip().lower() for each in proxies.get("no", "").split(",")))
    port = server.port or (443 if server.scheme == "https" else 80)
    if any(_excepts(each, host, port) for each in ("localhost", "127.0.0.0/8", "::1", *excepted)):
        return None
    return proxies.get(server.scheme)


def _excepts(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:  # the one or the other is a name, or has a port
        name, _, number = entry.rpartition(":")
    if name and number.isdecimal():
        return int(number) == port and _excepts(name, host, port)
    return host == entry or host.endswith(f".{entry.removeprefix('*').lstrip('.')}")
