"""A real LiteLLM proxy before the fleet, with its Prometheus callback."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from engine_pages.gateways import VERSIONS, installed
from servingpool_lab.control_plane import free_ports
from servingpool_lab.processes import SupervisedProcess, http_ready

VERSION = VERSIONS["litellm"]
START_LIMIT = 180.0
"""Seconds until it answers: it imports for half a minute on a busy machine."""


class LiteLLM:
    """One process. Its page is its port's `/metrics/`."""

    def __init__(self, directory: Path, model: str, engines: str) -> None:
        """`engines`: the address of the Service before them."""
        self.port, self.key = free_ports(1)[0], f"sk-{secrets.token_hex(16)}"
        to = {"model": f"ollama_chat/{model}", "api_base": engines}
        config = {
            "model_list": [{"model_name": model, "litellm_params": to}],
            "litellm_settings": {"callbacks": ["prometheus"], "require_auth_for_metrics_endpoint": False},
            "router_settings": {"num_retries": 0},
        }
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / "litellm.json"
        file.write_text(json.dumps(config))
        # Connections that are kept stay with the replicas that they were made to.
        own = {"LITELLM_MASTER_KEY": self.key, "AIOHTTP_KEEPALIVE_TIMEOUT": "1"}
        self.process = SupervisedProcess(
            "litellm",
            [installed("litellm") / "litellm", "--config", file, "--host", "127.0.0.1", "--port", f"{self.port}"],
            directory / "litellm.log",
            ready=http_ready(f"http://127.0.0.1:{self.port}/health/liveliness"),
            ready_timeout_seconds=START_LIMIT,
            environment={**os.environ, **own},
        )

    @property
    def url(self) -> str:
        """Its base address."""
        return f"http://127.0.0.1:{self.port}"
