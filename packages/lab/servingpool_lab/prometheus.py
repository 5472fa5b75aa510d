"""A real Prometheus that discovers pods through the API and scrapes them all at one address.

kwok's pods have addresses that nothing listens on. Whatever speaks for them listens on one
loopback port and serves each pod's metrics at `/pods/NAMESPACE/POD/metrics`.
"""

import json
import urllib.parse
from pathlib import Path
from typing import Any, Self

import yaml

from servingpool_lab.binaries import ensure_binaries
from servingpool_lab.control_plane import free_ports
from servingpool_lab.processes import SupervisedProcess, http_ready, open_local

_META = "__meta_kubernetes"


class Prometheus:
    """Starts Prometheus and answers queries. A restart keeps data, port and configuration."""

    def __init__(
        self,
        directory: Path,
        kubeconfig: Path,
        target: str,
        *,
        scrape_interval_seconds: float = 5.0,
        port: int | None = None,
        binary: Path | None = None,
        operator: str | None = None,
    ) -> None:
        """Prepare; nothing runs before `start`.

        Args:
            directory: for data, log and configuration.
            kubeconfig: of an identity that may list and watch pods.
            target: `host:port` that serves every pod's metrics.
            scrape_interval_seconds: also the evaluation interval; the timeout is no longer.
            port: loopback port to listen on; a free one if omitted.
            binary: the program, built first if omitted (minutes, once).
            operator: `host:port` of the operator's own metrics, which are scraped too.
        """
        self._directory = directory.absolute()
        self._kubeconfig = kubeconfig.absolute()
        self._target = target
        self._scrape_interval_seconds = scrape_interval_seconds
        self._port = port or free_ports(1)[0]
        self._binary = binary
        self._operator = operator
        self._process: SupervisedProcess | None = None

    @property
    def url(self) -> str:
        """Base URL of the HTTP API. There is no web UI: it is not part of the Go module."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> Self:
        """Start, or start again on the same data and port, and wait until it answers.

        Raises:
            BuildError: the program is missing and cannot be built.
            ProcessError: it runs already, or does not become ready.
        """
        if self._process is None:
            self._process = self._define()
        self._process.start()
        try:
            self._process.wait_ready()
        except BaseException:
            self._process.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop and wait for the exit. Safe to call twice."""
        if self._process is not None:
            self._process.stop()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The result of an instant query: a list of `{"metric": labels, "value": [time, text]}`.

        Raises:
            OSError: no answer, or an error status.
        """
        parameters = urllib.parse.urlencode({"query": expression})
        result: list[dict[str, Any]] = self._get(f"/api/v1/query?{parameters}")["result"]
        return result

    def targets(self) -> list[dict[str, Any]]:
        """The active scrape targets, as the API reports them."""
        targets: list[dict[str, Any]] = self._get("/api/v1/targets?state=active")["activeTargets"]
        return targets

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def configuration(self) -> dict[str, Any]:
        """The configuration file's content."""
        interval = f"{round(self._scrape_interval_seconds * 1000)}ms"
        timeout = f"{round(min(self._scrape_interval_seconds, 10.0) * 1000)}ms"
        jobs: list[dict[str, Any]] = [
            {
                "job_name": "pods",
                "kubernetes_sd_configs": [{"role": "pod", "kubeconfig_file": str(self._kubeconfig)}],
                "relabel_configs": self._relabeling(),
            }
        ]
        if self._operator is not None:
            # As the chart's ServiceMonitor: the labels that name a pool are the operator's.
            own = {"job_name": "operator", "honor_labels": True, "static_configs": [{"targets": [self._operator]}]}
            jobs.append(own)
        return {
            "global": {
                "scrape_interval": interval,
                "scrape_timeout": timeout,
                "evaluation_interval": interval,
            },
            "scrape_configs": jobs,
        }

    def _relabeling(self) -> list[dict[str, Any]]:
        # Discovery yields one target for each container port. None of them enters the labels, so
        # Prometheus merges them into one target for each pod.
        pod = [f"{_META}_namespace", f"{_META}_pod_name"]
        return [
            _keep(f"{_META}_pod_ready", "true"),
            _keep(f"{_META}_pod_annotation_prometheus_io_scrape", "true"),
            {"target_label": "__address__", "replacement": self._target},
            {
                "source_labels": pod,
                "separator": "/",
                "target_label": "__metrics_path__",
                "replacement": "/pods/$1/metrics",
            },
            {"source_labels": pod[:1], "target_label": "namespace"},
            {"source_labels": pod[1:], "target_label": "pod"},
            {"source_labels": [f"{_META}_pod_ip"], "target_label": "instance"},
        ]

    def _define(self) -> SupervisedProcess:
        binary = self._binary or ensure_binaries("prometheus")["prometheus"]
        self._directory.mkdir(parents=True, exist_ok=True)
        configuration = self._directory / "prometheus.yaml"
        configuration.write_text(yaml.safe_dump(self.configuration(), sort_keys=False))
        return SupervisedProcess(
            "prometheus",
            [
                binary,
                f"--config.file={configuration}",
                f"--web.listen-address=127.0.0.1:{self._port}",
                f"--storage.tsdb.path={self._directory / 'data'}",
                "--storage.tsdb.retention.time=1d",
                "--log.level=warn",
            ],
            self._directory / "prometheus.log",
            ready=http_ready(f"{self.url}/-/ready"),
        )

    def _get(self, path: str) -> dict[str, Any]:
        with open_local(self.url + path, 10.0) as response:
            data: dict[str, Any] = json.load(response)["data"]
            return data


def _keep(label: str, value: str) -> dict[str, Any]:
    return {"source_labels": [label], "regex": value, "action": "keep"}
