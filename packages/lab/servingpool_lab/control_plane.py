"""A real Kubernetes control plane as plain processes of the calling user.

etcd, kube-apiserver, kube-controller-manager and kube-scheduler, with kwok for the kubelets.
Everything listens on loopback. RBAC is on, so an operator can run with exactly the rights its
manifests give it: see `ControlPlane.service_account_kubeconfig`.
"""

import dataclasses
import json
import secrets
import shutil
import socket
import ssl
import tempfile
import urllib.parse
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from servingpool_lab import kwok
from servingpool_lab.api_client import ApiClient, ApiError, Manifests
from servingpool_lab.binaries import ensure_binaries
from servingpool_lab.control_plane_programs import LOOPBACK, Ports, Programs
from servingpool_lab.credentials import (
    CertificateAuthority,
    Identity,
    new_private_key,
    private_pem,
    write_kubeconfig,
    write_private,
)
from servingpool_lab.processes import ProcessGroup, wait_until

# Below the range from which the kernel picks ports for outgoing connections: one of those could
# otherwise take kube-apiserver's port while it is down between stop and start.
_PORT_RANGE = range(20000, 30000)
LIFETIME = 86400
"""Seconds of a ServiceAccount's token."""

# Who may do what comes from Kubernetes' own bootstrap roles for these names.
_ADMIN = ("admin", "system:masters")
_CONTROLLER_MANAGER = ("system:kube-controller-manager", "")
_SCHEDULER = ("system:kube-scheduler", "")
# kwok writes node and pod status and deletes pods; no bootstrap role covers that.
_KWOK = ("kwok", "system:masters")


def free_ports(count: int) -> list[int]:
    """`count` different loopback TCP ports that nothing listens on.

    Raises:
        OSError: none found in many attempts.
    """
    ports: list[int] = []
    with ExitStack() as held:
        for port in secrets.SystemRandom().sample(_PORT_RANGE, 500):  # not by the seed that tests share
            if len(ports) == count:
                return ports
            listener = held.enter_context(socket.socket())
            try:
                listener.bind((LOOPBACK, port))
            except OSError:
                continue
            ports.append(port)
    raise OSError(f"no {count} free ports in {_PORT_RANGE}")


class ControlPlane:
    """Starts, stops and restarts the control plane and answers for its credentials.

    As a context manager it starts on entry and stops on exit.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        binaries: Mapping[str, Path] | None = None,
        default_load_seconds: float = 30.0,
        default_load_jitter_seconds: float = 5.0,
        flags: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """Prepare a cluster; nothing runs before `start`.

        Args:
            directory: for data, logs and kubeconfigs. A temporary one, removed by `stop`, if
                omitted.
            binaries: programs by name, built first if omitted (minutes, once).
            default_load_seconds: from container start to Ready, for pods that do not say.
            default_load_jitter_seconds: upper bound of what is added to it.
            flags: more flags by program, such as `kube-apiserver`.
        """
        self._owns_directory = directory is None
        self._directory = directory or Path(tempfile.mkdtemp(prefix="servingpool-"))
        self._directory = self._directory.absolute()
        self._directory.mkdir(parents=True, exist_ok=True)
        self._binaries, self._flags = binaries, flags
        self._load = (default_load_seconds, default_load_jitter_seconds)
        self._ports = Ports(*free_ports(6))
        self._group = ProcessGroup()
        self._tokens = {user: secrets.token_urlsafe(24) for user, _ in self._static_users()}
        self._authority = CertificateAuthority()
        self._tls = ssl.create_default_context(cadata=self._authority.certificate.decode())
        self.client = ApiClient(self.url, self._tls, self._tokens[_ADMIN[0]])
        """Requests as cluster administrator."""

    @classmethod
    def attach(cls, directory: Path) -> Self:
        """A control plane that another process runs in `directory`: for requests and credentials, not to stop it."""
        plane = cls(directory)
        found = json.loads(plane.kubeconfig.read_text())
        certificate, key = (plane._file(name).read_bytes() for name in ("ca.crt", "ca.key"))
        plane._authority = CertificateAuthority(Identity(certificate, key))
        plane._tls = ssl.create_default_context(cadata=certificate.decode())
        port = urllib.parse.urlsplit(found["clusters"][0]["cluster"]["server"]).port
        plane._ports = dataclasses.replace(plane._ports, apiserver=port)
        plane.client = ApiClient(plane.url, plane._tls, found["users"][0]["user"]["token"])
        return plane

    @property
    def directory(self) -> Path:
        """Where data, logs (`logs/`) and kubeconfigs lie."""
        return self._directory

    @property
    def url(self) -> str:
        """kube-apiserver's URL. It stays the same over `stop_apiserver`/`start_apiserver`."""
        return f"https://{LOOPBACK}:{self._ports.apiserver}"

    @property
    def kubeconfig(self) -> Path:
        """The cluster administrator's kubeconfig; exists after `start`."""
        return self._directory / "admin.kubeconfig"

    def start(self) -> Self:
        """Start everything and wait until pods can be created; about 8 s on two cores.

        Raises:
            BuildError: the programs are missing and cannot be built.
            ProcessError: one does not become ready; everything is stopped again.
        """
        if self._binaries is None:
            self._binaries = ensure_binaries("etcd", "kubernetes")
        self._write_files()
        try:
            programs = Programs(self._directory, self._binaries, self._ports, self._tls, self._flags)
            self._apiserver = programs.apiserver()
            self._group.start(programs.etcd())
            self._group.start(self._apiserver)
            self._group.start(programs.controller_manager(), programs.scheduler(), programs.kwok())
            wait_until(self._accepts_pods, 240, "the default service account")
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop every process, last started first. Safe to call twice."""
        self._group.stop()
        if self._owns_directory:
            shutil.rmtree(self._directory, ignore_errors=True)

    def stop_apiserver(self) -> None:
        """Take the API away; returns once the port is free. The others keep running."""
        self._apiserver.stop()

    def start_apiserver(self) -> None:
        """Bring the API back on the same port with the same objects.

        Raises:
            ProcessError: it runs already, or does not become ready.
        """
        self._apiserver.start().wait_ready()

    def exited(self) -> list[str]:
        """Names of processes that should run and do not, a stopped apiserver included."""
        return [process.name for process in self._group.exited()]

    def apply(self, manifests: Manifests) -> list[dict[str, Any]]:
        """Server-side apply, as administrator; see `ApiClient.apply`."""
        return self.client.apply(manifests)

    def add_gpu_node(self, name: str, gpus: int) -> None:
        """Add a fake node with `gpus` GPUs and wait until it is schedulable.

        Raises:
            TimeoutError: it is not Ready in time.
        """
        self.apply(kwok.gpu_node(name, gpus))
        wait_until(lambda: self._node_schedulable(name), 240.0, f"node {name} ready")

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """A kubeconfig of an existing ServiceAccount: its rights are what RBAC grants it.

        Raises:
            ApiError: no such ServiceAccount.
        """
        spec = {"expirationSeconds": LIFETIME}
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = self.client.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", asked)
        token = answer["status"]["token"]
        return self._kubeconfig(f"serviceaccount-{namespace}-{name}", token=token, namespace=namespace)

    def user_kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig of any user in any groups, by client certificate."""
        path = self._directory / f"user-{user.replace(':', '-')}.kubeconfig"
        identity = self._authority.issue_user(user, list(groups))
        return write_kubeconfig(path, self.url, self._authority.certificate, identity=identity)

    def viewer_kubeconfig(self, user: str) -> Path:
        """A kubeconfig of `user`, who may read namespaced objects and nothing else."""
        self.apply(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"{user}-view"},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "view",
                },
                "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
            }
        )
        return self.user_kubeconfig(user)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @staticmethod
    def _static_users() -> list[tuple[str, str]]:
        return [_ADMIN, _CONTROLLER_MANAGER, _SCHEDULER, _KWOK]

    def _write_files(self) -> None:
        server = self._authority.issue_server(
            ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"],
            [LOOPBACK],
        )
        write_private(self._file("ca.crt"), self._authority.certificate)
        write_private(self._file("ca.key"), self._authority.key)
        write_private(self._file("apiserver.crt"), server.certificate)
        write_private(self._file("apiserver.key"), server.key)
        write_private(self._file("service-account.key"), private_pem(new_private_key()))
        tokens = "".join(f'{self._tokens[user]},{user},{user},"{group}"\n' for user, group in self._static_users())
        write_private(self._file("tokens.csv"), tokens.encode())
        for name, (user, _) in (
            ("admin", _ADMIN),
            ("controller-manager", _CONTROLLER_MANAGER),
            ("scheduler", _SCHEDULER),
            ("kwok", _KWOK),
        ):
            self._kubeconfig(name, token=self._tokens[user])
        kwok.write_stages(self._file("stages.yaml"), *self._load)

    def _kubeconfig(self, name: str, *, token: str, namespace: str = "default") -> Path:
        path = self._file(f"{name}.kubeconfig")
        authority = self._authority.certificate
        return write_kubeconfig(path, self.url, authority, token=token, namespace=namespace)

    def _file(self, name: str) -> Path:
        return self._directory / name

    def _accepts_pods(self) -> bool:
        # Pod admission wants the namespace's default service account, which the controller
        # manager creates a moment after it starts.
        try:
            self.client.get("/api/v1/namespaces/default/serviceaccounts/default")
        except (ApiError, OSError):
            return False
        return True

    def _node_schedulable(self, name: str) -> bool:
        # The controller manager takes the not-ready taint off a moment after the node is Ready.
        node = self.client.get(f"/api/v1/nodes/{name}")
        conditions = {c["type"]: c["status"] for c in node["status"].get("conditions", [])}
        return conditions.get("Ready") == "True" and not node["spec"].get("taints")
