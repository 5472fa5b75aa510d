"""`python tools/engine_pages/gateways.py [NAME ...]`: pages of real gateways, run on loopback before two tiny engines.

Six requests are over, three of them streamed; two streamed and two not are in flight when the page is read.
The page of `noworkers` is read after one request to a gateway with no engine; of LiteLLM, whose engine does not answer.
"""

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from engine_pages import tiny_engine  # noqa: E402

FIXTURES = ROOT / "tests" / "fixtures" / "engines"
CACHE = ROOT / "build" / "engine_pages"
VERSIONS = {"vllm-router": "0.1.17", "sglang-router": "0.3.2", "litellm": "1.105.7"}
EXTRAS = {"litellm": "[proxy]"}
KEY = f"sk-{secrets.token_hex(16)}"
"""LiteLLM does not start without one; the others pass it on."""
START_LIMIT_S = 120.0
NO_ENGINE = "http://127.0.0.1:9"
REFUSED = {"litellm": 500}
"""What a gateway answers without an engine, where that is not 503."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def installed(name: str) -> Path:
    """Folder with the gateway's programs, in a virtual environment of its own.

    Raises:
        CalledProcessError: pip fails.
    """
    environment = CACHE / f"{name}-{VERSIONS[name]}"
    programs = environment / "bin"
    if not (environment / "installed").exists():
        venv.create(environment, with_pip=True, clear=True)
        wanted = f"{name}{EXTRAS.get(name, '')}=={VERSIONS[name]}"
        subprocess.run([programs / "pip", "install", "--quiet", wanted, "prometheus_client"], check=True)  # noqa: S603
        (environment / "installed").touch()
    return programs


def _command(name: str, programs: Path, port: int, metrics: int, engines: list[str]) -> tuple[list[str], str]:
    """The program with its arguments, and the address of its page."""
    if name == "litellm":
        to = {"model": f"openai/{tiny_engine.MODEL}", "api_key": "none"}
        models = [
            {"model_name": tiny_engine.MODEL, "litellm_params": {**to, "api_base": f"{engine}/v1"}}
            for engine in engines or [NO_ENGINE]
        ]
        settings = {"callbacks": ["prometheus"], "require_auth_for_metrics_endpoint": False}
        config = CACHE / "litellm.json"
        config.write_text(json.dumps({"model_list": models, "litellm_settings": settings}))
        command = [str(programs / "litellm"), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
        return command, f"http://127.0.0.1:{port}/metrics/"
    start = [str(programs / name), *(["launch"] if name == "sglang-router" else [])]
    listen = ["--host", "127.0.0.1", "--port", str(port)]
    listen += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics)]
    workers = ["--worker-urls", *engines] if engines else []
    return [*start, *listen, "--policy", "round_robin", *workers], f"http://127.0.0.1:{metrics}/metrics"


def _ask(port: int, *, stream: bool, pace: float = 0.02) -> int:
    messages = [{"role": "user", "content": str(pace)}]
    body = {"model": tiny_engine.MODEL, "messages": messages, "stream": stream, "max_tokens": tiny_engine.TOKENS}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def _page(name: str, *, with_engines: bool) -> str:
    programs = installed(name)
    engines = [tiny_engine.server() for _ in range(2 if with_engines else 0)]
    for engine in engines:
        threading.Thread(target=engine.serve_forever, daemon=True).start()
    port, metrics = _free_port(), _free_port()
    command, address = _command(name, programs, port, metrics, [f"http://127.0.0.1:{e.server_port}" for e in engines])
    environment = {**os.environ, "LITELLM_MASTER_KEY": KEY}
    with (
        (CACHE / f"{name}.log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=environment) as gateway,  # noqa: S603
    ):
        try:
            limit = time.monotonic() + START_LIMIT_S
            wanted = 200 if with_engines else REFUSED.get(name, 503)
            while (status := _ask(port, stream=False)) != wanted:
                if time.monotonic() > limit or gateway.poll() is not None:
                    raise RuntimeError(f"{name} did not start (HTTP {status}): see {log.name}")
                time.sleep(1)
            if with_engines:
                for number in range(5):
                    _ask(port, stream=number % 2 == 0)
            slow = [{"stream": number % 2 == 0, "pace": 0.2} for number in range(4)]
            asked = [threading.Thread(target=_ask, args=(port,), kwargs=kind) for kind in slow]
            for thread in asked if with_engines else ():
                thread.start()
            time.sleep(1.5)
            with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310
                page = str(answer.read().decode())
        finally:
            gateway.terminate()
    for number, engine in enumerate(engines):  # names that do not change from run to run
        page = page.replace(f"127.0.0.1:{engine.server_port}", f"10.0.0.{number + 1}:8000")
        engine.shutdown()
    return page.replace(f"127.0.0.1:{port}", "10.0.0.9:8000")


def main() -> int:
    """Write the chosen gateways' pages, or all of them."""
    CACHE.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or VERSIONS:
        for variant in ("", "noworkers"):
            page = _page(name, with_engines=not variant)
            version = VERSIONS[name]
            said = "no engine, one request refused" if variant else "two engines, six requests over, four in flight"
            file = FIXTURES / f"{'-'.join(filter(None, ('gateway', name, version, variant)))}.txt"
            file.write_text(
                f"# Printed by a real {name} {version} with tools/engine_pages/gateways.py: {said}.\n{page}"
            )
            print(f"{file.name}: {page.count(chr(10))} lines")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
