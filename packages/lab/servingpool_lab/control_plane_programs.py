"""The programs of a control plane, with their flags."""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from servingpool_lab import kwok
from servingpool_lab.processes import ProcessError, SupervisedProcess, http_ready

LOOPBACK = "127.0.0.1"
_ISSUER = "https://kubernetes.default.svc"


@dataclass(frozen=True)
class Ports:
    """What each listens on, on loopback."""

    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int
    kwok: int


class Programs:
    """Defines each process; its files lie in `directory` once the control plane has written them."""

    def __init__(
        self,
        directory: Path,
        binaries: Mapping[str, Path],
        ports: Ports,
        tls: ssl.SSLContext,
        flags: Mapping[str, Sequence[str]],
    ) -> None:
        self._directory, self._binaries, self._ports, self._tls, self._flags = directory, binaries, ports, tls, flags

    def etcd(self) -> SupervisedProcess:
        """Its storage."""
        url = f"http://{LOOPBACK}:{self._ports.etcd}"
        peer_url = f"http://{LOOPBACK}:{self._ports.etcd_peer}"
        return self._process(
            "etcd",
            [
                "--name=lab",
                f"--data-dir={self._file('etcd')}",
                f"--listen-client-urls={url}",
                f"--advertise-client-urls={url}",
                f"--listen-peer-urls={peer_url}",
                f"--initial-advertise-peer-urls={peer_url}",
                f"--initial-cluster=lab={peer_url}",
                "--log-level=warn",
                # Data has to survive the process, not the machine; fsync would cost most of the
                # latency of every write on a slow disk.
                "--unsafe-no-fsync",
            ],
            f"{url}/health",
        )

    def apiserver(self) -> SupervisedProcess:
        """With RBAC; ready once it has bootstrapped its roles."""
        service_account_key = self._file("service-account.key")
        return self._process(
            "kube-apiserver",
            [
                f"--etcd-servers=http://{LOOPBACK}:{self._ports.etcd}",
                f"--bind-address={LOOPBACK}",
                f"--advertise-address={LOOPBACK}",
                # Endpoints of the `kubernetes` Service must not be loopback addresses.
                "--endpoint-reconciler-type=none",
                f"--secure-port={self._ports.apiserver}",
                f"--tls-cert-file={self._file('apiserver.crt')}",
                f"--tls-private-key-file={self._file('apiserver.key')}",
                f"--client-ca-file={self._file('ca.crt')}",
                f"--token-auth-file={self._file('tokens.csv')}",
                "--authorization-mode=Node,RBAC",
                f"--service-account-issuer={_ISSUER}",
                f"--service-account-key-file={service_account_key}",
                f"--service-account-signing-key-file={service_account_key}",
                "--service-cluster-ip-range=10.96.0.0/16",
                # Ends open watches on shutdown; without it the server waits a minute for them.
                "--shutdown-watch-termination-grace-period=2s",
                "--profiling=false",
            ],
            f"https://{LOOPBACK}:{self._ports.apiserver}/readyz",
        )

    def controller_manager(self) -> SupervisedProcess:
        """Its controllers."""
        port = self._ports.controller_manager
        return self._process(
            "kube-controller-manager",
            [
                *self._serving_flags("controller-manager", port),
                "--use-service-account-credentials=true",
                f"--service-account-private-key-file={self._file('service-account.key')}",
                f"--root-ca-file={self._file('ca.crt')}",
                # Heartbeats may be late on a busy small machine, and eviction is not the subject.
                "--node-monitor-grace-period=2m",
                # The defaults throttle a scale-up by tens of pods.
                "--kube-api-qps=200",
                "--kube-api-burst=400",
            ],
            f"https://{LOOPBACK}:{port}/healthz",
        )

    def scheduler(self) -> SupervisedProcess:
        """Its scheduler."""
        port = self._ports.scheduler
        return self._process(
            "kube-scheduler",
            self._serving_flags("scheduler", port),
            f"https://{LOOPBACK}:{port}/healthz",
        )

    def kwok(self) -> SupervisedProcess:
        """The kubelets."""
        port = self._ports.kwok
        command = kwok.command(self._binary("kwok"), self._file("kwok.kubeconfig"), self._file("stages.yaml"), port)
        return self._process("kwok", command[1:], f"http://{LOOPBACK}:{port}/healthz")

    def _serving_flags(self, name: str, port: int) -> list[str]:
        kubeconfig = self._file(f"{name}.kubeconfig")
        return [
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            # One of each runs; an election would only delay the start and the recovery from a
            # restart of kube-apiserver.
            "--leader-elect=false",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={port}",
            f"--tls-cert-file={self._file('apiserver.crt')}",
            f"--tls-private-key-file={self._file('apiserver.key')}",
            "--profiling=false",
        ]

    def _process(self, name: str, flags: Sequence[str], health_url: str) -> SupervisedProcess:
        return SupervisedProcess(
            name,
            [self._binary(name), *flags, *self._flags.get(name, ())],
            self._directory / "logs" / f"{name}.log",
            ready=http_ready(health_url, self._tls if health_url.startswith("https") else None),
        )

    def _binary(self, name: str) -> Path:
        if name not in self._binaries:
            raise ProcessError(f"no path for the program {name}")
        return self._binaries[name]

    def _file(self, name: str) -> Path:
        return self._directory / name
