"""Every figure that README, evidence page and benchmark pages state, from today's core: `make evidence`.

A part is not run again while its sources and arguments are the same; comments and layout do not count. So the command
can be stopped at any time, and goes on where it was. Each page and its JSON in docs/benchmarks/figures are written when
its part is done. At the end the texts get the figures of the JSON, every change is printed, and a place that is not
found, or a page that was edited by hand, fails.

--quick runs a tenth into build/, compares it with the JSON and writes nothing else. --check runs nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / "control")]

import store  # noqa: E402
from claims import CLAIMS  # noqa: E402
from stated import FIGURES, PAGES, ROOT, Kept, compared, edited, stamped, tables, worse  # noqa: E402

CORE = "operator/servingpool/decision"
SOURCES = (
    f"{CORE}/**/*.py",
    *(
        f"{store.SIMULATION}/{which}"
        for which in ("*.py", "families/*.py", "baselines/*.py", "data/*.json", "data/*.csv", "data/*.gz")
    ),
)
TESTING = (
    *(f"packages/backtest/servingpool_backtest/{name}.py" for name in ("arrival_rate", "arrivals", "autoscaler_rule")),
    *(f"packages/backtest/servingpool_backtest/{name}.py" for name in ("bursts", "curves", "engine_fit", "intervals")),
    *(f"packages/backtest/servingpool_backtest/{name}.py" for name in ("observed", "replay", "result", "run")),
    *("benchmarks/history_in_prometheus.py", "operator/servingpool/recording/*.py"),
)
"""What a backtest's figures depend on; `report.py` states them."""
LOOP = (
    *(
        f"operator/servingpool/{room}/**/*.py"
        for room in ("adapters", "api", "gpubudget", "loop", "reconcile", "status")
    ),
    *("operator/servingpool/cli/assembly.py", "deploy/Dockerfile"),
    *(f"benchmarks/{name}.py" for name in ("fake_cluster", "fleet", "measuring", "prometheus_process")),
    *("benchmarks/real_cluster.py", "benchmarks/stand_in_prometheus.py"),
)
"""What a tick's figures depend on besides the core; `catalogue` states what a tick costs."""
OLDEST = 30
"""Most commits that may change the core after the front page's figures were computed."""
BACKTESTED = "ramp conv-h100 conv-a100-8b conv-l40s code on-off regimes reasoning"
QUICK = ROOT / "build" / "benchmarks" / "quick"


@dataclass(frozen=True, slots=True)
class Part:
    """Commands that write one or two pages."""

    name: str
    commands: tuple[str, ...]
    """Below benchmarks/, with their arguments; {jobs} is the number of processes."""
    pages: tuple[str, ...]
    """Of docs/benchmarks; a part without one is a picture."""
    minutes: float
    """About, on two quiet cores, with nothing known from before."""
    quick: str = ""
    """The tenth; {out} is a page beside the published ones."""
    sources: tuple[str, ...] = ()
    """Besides SOURCES and the scripts of the commands."""

    def inputs(self) -> str:
        """A hash of sources and arguments."""
        scripts = [f"benchmarks/{command.split()[0]}" for command in self.commands]
        control = ["benchmarks/control/*.py"] if any("/control/" in script for script in scripts) else []
        patterns = (*SOURCES, *scripts, *control, *self.sources)
        store.meaning.cache_clear()
        said = "\n".join((*self.commands, *map(store.meaning, patterns)))
        return hashlib.sha256(said.encode()).hexdigest()[:20]

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of its JSON."""
        return self.pages or (self.name,)

    def known(self) -> bool:
        """It needs no run."""
        inputs = self.inputs()
        return all(
            (FIGURES / f"{name}.json").exists()
            and Kept.load(name).inputs == inputs
            and (not self.pages or tables((PAGES / f"{name}.md").read_text()) == Kept.load(name).figures)
            for name in self.kept
        )


PARTS = (
    Part(
        "guard",
        ("control/guard.py --jobs {jobs} --output docs/benchmarks/guard.md",),
        ("guard",),
        8,
        "control/guard.py --jobs {jobs} --output {out} --cases ramp conv-l40s code renewal-10",
    ),
    Part("control", ("control/bench.py --workers {jobs}",), ("README", "cases"), 30),
    Part("day", ("control/day_picture.py",), (), 2),
    Part(
        "ablations",
        ("control/ablated.py --jobs {jobs} --output docs/benchmarks/ablations.md",),
        ("ablations",),
        20,
    ),
    Part(
        "odd",
        ("control/odd.py --jobs {jobs} --output docs/benchmarks/odd.md",),
        ("odd",),
        5,
        "control/odd.py --jobs {jobs} --output {out} --cases speculative ramp-at-3",
    ),
    Part("engines", ("control/engines.py --jobs {jobs} --output docs/benchmarks/engines.md",), ("engines",), 4),
    Part(
        "several-targets",
        # Two seeds: those of the page of 25 November 2026 lay at most 0.023 of the best mix's dollars apart.
        ("several_targets.py --jobs {jobs} --seeds 0 1",),
        ("several-targets",),
        14,
        "several_targets.py conv --quick --seeds 0",
    ),
    Part(
        "prefill-decode",
        ("prefill_decode.py --jobs {jobs}",),
        ("prefill-decode",),
        3,
        "prefill_decode.py --quick --seeds 0",
    ),
    Part("budget", ("gpu_budget.py --jobs {jobs}",), ("budget",), 14, sources=("operator/servingpool/gpubudget/*.py",)),
    Part("zero", ("scale_to_zero.py",), ("zero",), 2, "scale_to_zero.py --out {out}"),
    Part("simulator", ("control/validate_simulator.py",), ("simulator",), 1),
    Part(
        "published-runs",
        ("published_runs.py",),
        ("published-runs",),
        1,
        "published_runs.py --output {out}",
        ("benchmarks/published_runs.toml",),
    ),
    Part("real-gpu", ("control/real_gpu_pair.py",), ("real-gpu",), 1, "control/real_gpu_pair.py --output {out}"),
    Part(
        "backtest",
        (f"backtest.py {BACKTESTED} --jobs {{jobs}} --output docs/benchmarks/backtest.md",),
        ("backtest",),
        15,
        sources=(*TESTING, "benchmarks/recorded_history.py", "benchmarks/control/cases.py"),
    ),
    # The last one: it measures CPU, so nothing else should run.
    Part("thousand-pools", ("thousand_pools.py",), ("thousand-pools",), 14, sources=LOOP),
)


def main() -> int:
    """Compute what is not known, then compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [part.name for part in PARTS]
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="a tenth, compared with the JSON")
    parser.add_argument("--check", action="store_true", help="compare texts, pages and JSON; run nothing")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(names):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    parts = [part for part in PARTS if part.name in (asked.parts or names)]
    pages = {name for part in parts for name in part.kept}
    claims = [claim for claim in CLAIMS if claim.page in pages]
    if asked.quick:
        wrong = [line for part in parts if part.quick for line in tenth(part, asked.jobs)]
    else:
        for part in () if asked.check else parts:
            remake(part, asked.jobs)
        for line in () if asked.check else compared(claims, write=True):
            print(f"Changed: {line}. Read the sentence around it, then run make generate.")
        wrong = [
            f"{part.name}: never run" for part in parts if not all((FIGURES / f"{n}.json").exists() for n in part.kept)
        ]
    wrong += [*compared(claims), *edited(pages), *(too_old() if "guard" in pages else ())]
    print("\n".join(wrong) or "Every figure is that of its JSON.")
    return 1 if wrong else 0


def remake(part: Part, jobs: int) -> None:
    """Runs the part if an input changed, and writes JSON and stamps of its pages."""
    core, inputs = store.core_commit(), part.inputs()
    if _git("status", "--porcelain", "--", CORE).stdout:
        raise SystemExit(f"{CORE} has changes: commit them, for each page says of which commit it is")
    if part.known():
        print(f"{part.name}: known from before")
        for name in part.kept:  # the core's later commits change no figure, so they are of this one too
            _write(name, replace(Kept.load(name), core=core))
        return
    print(f"{part.name}: about {part.minutes:.0f} minutes with nothing known from before", flush=True)
    past = {name: Kept.load(name) for name in part.kept if (FIGURES / f"{name}.json").exists()}
    began = time.monotonic()
    for command in part.commands:
        _run(command.format(jobs=jobs))
    minutes = round((time.monotonic() - began) / 60, 1)
    if part.inputs() != inputs or store.core_commit() != core:
        raise SystemExit(f"{part.name}: the sources changed meanwhile; run it again")
    for name in part.kept:
        found = tables((PAGES / f"{name}.md").read_text()) if part.pages else {}
        before = past.get(name)
        lost = worse(found, before.figures) if before else []
        day = f"{datetime.now(UTC):%Y-%m-%d}"
        _write(name, Kept(core, day, minutes, inputs, lost, before.core if before and lost else "", found))


def tenth(part: Part, jobs: int) -> Iterator[str]:
    """Runs it; what of its rows differs from the JSON and should not."""
    QUICK.mkdir(parents=True, exist_ok=True)
    out = QUICK / f"{part.name}.md"
    _run(part.quick.format(jobs=jobs, out=out))
    if "{out}" not in part.quick:
        return
    kept, found, same = Kept.load(part.pages[0]), tables(out.read_text()), part.known()
    lost = worse({at: [row for row in rows if not _summary(row[0])] for at, rows in found.items()}, kept.figures)
    for heading, rows in found.items():
        for row in rows:
            past = [one for one in kept.figures.get(heading, []) if one[0] == row[0]]
            if len(row) > 1 and past and row not in past and not _summary(row[0]):
                said = f"{part.name}: {row}, which is not in the JSON of core {kept.core}"
                if same or row[0] in lost:
                    yield said
                else:
                    print(said)


def _summary(first: str) -> bool:
    """A row over all cases, of which only some were run."""
    return first == "**all**" or first.startswith("mean of")


def too_old() -> list[str]:
    """The front page, if more commits of the core came since; nothing where that cannot be known."""
    core = Kept.load("guard").core
    since = commits_since(core)
    if since is None:
        print(f"The age of the front page is not known: this clone's history does not reach {core}.")
    elif since > OLDEST:
        return [
            f"README.md: its figures are {since} commits of the core old (of {core}); at most {OLDEST}: make evidence"
        ]
    return []


def commits_since(core: str) -> int | None:
    """Commits that touched the core after this one; None where a shallow clone does not have it and cannot tell."""
    if _git("cat-file", "-e", f"{core}^{{commit}}").returncode == 0:
        return int(_git("rev-list", "--count", f"{core}..HEAD", "--", CORE).stdout)
    there = _git("rev-list", "--count", "HEAD", "--", CORE)
    if there.returncode != 0:  # a copy without history, or one that git does not trust
        return None
    seen = int(there.stdout)
    # The oldest commit of a shallow clone has no parent there, so it seems to touch everything.
    return seen - 1 if seen - 1 > OLDEST else None


def _write(name: str, kept: Kept) -> None:
    kept.save(name)
    page = PAGES / f"{name}.md"
    if page.exists():
        page.write_text(stamped(page.read_text(), kept))


def _run(command: str) -> None:
    script, *options = command.split()
    print(f"  benchmarks/{command}", flush=True)
    subprocess.run([sys.executable, f"benchmarks/{script}", *options], cwd=ROOT, check=True)


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
