"""A backtest as a Job in the cluster, with the image that is made for it, from the logs into pages."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from .cluster import Cluster
from .engines import TOLERATIONS
from .images import Images, build_backtest
from .prometheus import URL, PrometheusRelease
from .results import Results
from .shell import run
from .steady import NAME, TPOT, TTFT, Steady
from .waiting import eventually

JOB = "servingpool-backtest"
SCRAPES = 90
"""Of a pod, every 5 s: a backtest needs 20 intervals of 15 s, and a recording ends a minute ago."""


def test_a_job_backtests_and_its_logs_become_pages(
    cluster: Cluster, prometheus: PrometheusRelease, images: Images, steady: Steady, results: Results, tmp_path: Path
) -> None:
    assert steady.serves()
    image = build_backtest(images.operator)
    cluster.load([image])
    scrapes = f'max(count_over_time(vllm:num_requests_running{{namespace="{NAME}"}}[10m]))'
    eventually(lambda: (prometheus.value(scrapes) or 0.0) >= SCRAPES, 600, "a history to backtest", every=5)
    servingpool = (sys.executable, "-m", "servingpool.cli.main", "backtest")
    manifest = run(
        *servingpool,
        *(f"deployment/{NAME}", f"--namespace={NAME}", "--since=10m", f"--prometheus={URL}"),
        *(f"--ttft={TTFT:g}s", f"--tpot={1000 * TPOT:g}ms", "--max=4", f"--as-job={image}"),
    )
    objects = list(yaml.safe_load_all(manifest))
    pod = next(one for one in objects if one["kind"] == "Job")["spec"]["template"]["spec"]
    pod["tolerations"] = TOLERATIONS
    # The node has two cores, most of which others have asked for.
    pod["containers"][0]["resources"]["requests"]["cpu"] = "50m"
    manifest = yaml.safe_dump_all(objects)
    cluster.kubectl("apply", "--filename=-", stdin=manifest)
    try:
        job = f"job/{JOB}"
        cluster.kubectl("wait", "--for=condition=Complete", job, f"--namespace={NAME}", "--timeout=300s", seconds=310)
        logs = cluster.kubectl("logs", f"--selector=job-name={JOB}", "--tail=-1", f"--namespace={NAME}")
    finally:
        cluster.kubectl("delete", "--filename=-", stdin=manifest)
    report = tmp_path / "all.html"
    (tmp_path / "logs.txt").write_text(logs)
    # 5: ten minutes are too little for a verdict.
    command = (*servingpool, "--collect", str(tmp_path / "logs.txt"), "--report", str(report))
    said = run("sh", "-c", '"$@" || test $? -eq 5', "sh", *command)
    assert "1 pool without a verdict yet" in said
    assert f"{NAME}/{NAME}" in report.read_text()
    assert f"Backtest of {NAME}/{NAME}" in (tmp_path / f"{NAME}.{NAME}.html").read_text()
    results.add(scenario="a backtest as a Job, its logs collected", outcome=said.splitlines()[0])
