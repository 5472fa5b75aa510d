"""aiperf, a load generator that nobody here wrote: what it is told to send, and what it noted of each request."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from .scenes import Scene
from .timeline import Answer

LOCK = Path(__file__).with_name("aiperf.lock")
"""Has `vllm-router` too."""
SUMMARY, RECORDS = "profile_export_aiperf.json", "profile_export.jsonl"


@dataclass(frozen=True)
class Record:
    """One request. Unix seconds and seconds; None where it had no token, or one."""

    sent: float
    ended: float
    ttft: float | None
    tpot: float | None
    failed: bool

    def good(self, ttft: float, tpot: float) -> bool:
        """Whether it met these bounds, as aiperf counts its goodput."""
        return not self.failed and self.ttft is not None and self.ttft <= ttft and (self.tpot or 0.0) <= tpot

    def answer(self, ttft: float, tpot: float) -> Answer:
        """What became of it, and from when on anybody could say so: a late first token is late before it comes."""
        late = self.ttft is not None and self.ttft > ttft
        return Answer(min(self.ended, self.sent + ttft) if late else self.ended, self.good(ttft, tpot))


class Aiperf:
    """One run of a scene's steps: open loop, at arrivals drawn here, sent and measured there."""

    def __init__(self, python: Path, folder: Path, scene: Scene, url: str, tokenizer: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for name in (SUMMARY, RECORDS):
            (folder / name).unlink(missing_ok=True)
        trace = folder / "schedule.jsonl"
        trace.write_text("".join(json.dumps(line) + "\n" for line in schedule(scene)))
        self._command: list[str | Path] = [
            *(python.with_name("aiperf"), "profile", f"--url={url}", f"--model={scene.name}"),
            *("--endpoint-type=completions", "--streaming", f"--tokenizer={tokenizer}", "--use-server-token-count"),
            *(f"--input-file={trace}", "--custom-dataset-type=mooncake_trace", "--fixed-schedule"),
            f"--goodput=time_to_first_token:{1e3 * scene.ttft:g} inter_token_latency:{1e3 * scene.tpot:g}",
            f"--request-timeout-seconds={scene.patience:g}",
            # It shares two cores with what it measures.
            *("--workers-max=1", "--record-processors=1", "--no-server-metrics", "--no-gpu-telemetry", "--ui=none"),
            f"--output-artifact-dir={folder}",
        ]

    def start(self) -> Self:
        """Begin; it takes some seconds until the first request."""
        with (self._folder / "aiperf.log").open("w") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)
        return self

    def wait(self, seconds: float) -> None:
        """Until its last request has ended and its figures are there."""
        try:
            code = self._process.wait(seconds)
        finally:
            self._process.terminate()
        said = (self._folder / "aiperf.log").read_text()[-2000:]
        assert code == 0, f"aiperf: exit status {code}\n{said}"

    def summary(self) -> dict[str, float]:
        """Its own figures of the whole run: means, counts and shares, by its own names."""
        found: dict[str, Any] = json.loads((self._folder / SUMMARY).read_text())
        return {name: value["avg"] for name, value in found.items() if isinstance(value, dict) and "avg" in value}

    def records(self) -> list[Record]:
        """Its requests, in the order in which they were sent."""
        lines = (self._folder / RECORDS).read_text().splitlines()
        return sorted(map(_record, map(json.loads, lines)), key=lambda one: one.sent)


def schedule(scene: Scene) -> Iterable[dict[str, Any]]:
    """Poisson arrivals of a scene's steps, each with the body of its request. The prompts have nothing in common."""
    luck, begin = random.Random(scene.seed), 0.0
    for rate, seconds in scene.steps:
        at = begin + luck.expovariate(rate)
        while at < begin + seconds:
            body = {
                "model": scene.name,
                # Tokens 0 to 2 are special.
                "prompt": [luck.randrange(3, 1024) for _ in range(scene.prompt)],
                "max_tokens": scene.output,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            yield {"timestamp": round(1000 * at), "payload": body}
            at += luck.expovariate(rate)
        begin += seconds


def quantile(values: Sequence[float], share: float) -> float | None:
    """Of sorted or unsorted values; None of none."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else None


def _record(line: dict[str, Any]) -> Record:
    times, metrics = line["metadata"], line.get("metrics") or {}

    def seconds(name: str) -> float | None:
        return metrics[name]["value"] / 1e3 if name in metrics else None

    failed = bool(line.get("error")) or times["was_cancelled"]
    sent, ended = times["request_start_ns"] / 1e9, times["request_end_ns"] / 1e9
    return Record(sent, ended, seconds("time_to_first_token"), seconds("inter_token_latency"), failed)
