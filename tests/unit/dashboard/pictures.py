"""The documentation's pictures of the dashboard, of pools on virtual time.

`PYTHONPATH=tools python -m tests.unit.dashboard.pictures` writes docs/images/dashboard-pools.png and dashboard-pool.png.
A folder as argument gets both pages at 1280 and 390 pixels in both themes instead.
"""

from __future__ import annotations

import copy
import shutil
import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from servingpool_dashboard.pods import Load

from ..cli.recorder import Recorder  # noqa: TID252, tests are no package of an installed name
from ..reconcile.fake_cluster import FakeCluster, pod, stamp  # noqa: TID252
from ..reconcile.stories import settled  # noqa: TID252
from .conftest import TARGET
from .scene import Scene, raw_pod, stored
from .test_browser import ONE, Served

IMAGES = Path(__file__).parents[3] / "docs" / "images"


def rising(rate: float, minutes: float, most: int = 10, **spec: Any) -> Recorder:
    """A pool under this rate for so many minutes, after ten calm ones."""
    recorder = Recorder(settled(targets=[{**TARGET, "max": most}], **spec))
    recorder.run(10)
    recorder.world.services["vllm"].rate = rate
    recorder.run(minutes)
    return recorder


def named(world: FakeCluster, name: str, **spec: Any) -> dict[str, Any]:
    """The world's pool under another name."""
    (raw,) = copy.deepcopy(stored(world))
    raw["metadata"]["name"] = name
    raw["spec"] |= {"model": name, **spec}
    return raw


def fleet() -> tuple[Recorder, list[dict[str, Any]]]:
    """A pool whose replicas start, with its record; and pools in other states beside it."""
    missing = FakeCluster()
    missing.pool(targets=[{"name": "mistral-24b", "min": 1, "max": 4}])
    shown, others = rising(28.0, 1.5), {"llama-70b": rising(60.0, 5.0, most=4), "gemma-27b": rising(8.0, 5.0)}
    others |= {"gpt-oss-20b": rising(28.0, 5.0, mode="Recommend"), "mistral-24b": Recorder(missing)}
    others["mistral-24b"].run(0.25)
    for name, other in others.items():
        for labels, value in other.at(other.world.now):
            own = labels | dict.fromkeys({"pool", "model"} & labels.keys(), name)
            shown.scraped[shown.world.now].append((own, value))
    return shown, [named(other.world, name) for name, other in others.items()]


def with_pods(scene: Scene) -> None:
    """What the API server tells of the pods, and what their engines counted."""
    service = scene.world.services["vllm"]
    starting = {pod("vllm", service.next + number): at for number, at in enumerate(service.orders)}
    scene.api.pods = [raw_pod(name, at, phase="Running") for name, at in starting.items()]
    scene.api.pods += [raw_pod(engine.name, engine.ready_at - 100.0) for engine in service.engines]
    scene.loads = {engine.name: Load(10.0, 245.0, 2256.0, 100.0) for engine in service.engines}
    for _, _, reason, message in scene.world.writes.events:
        told = {"type": "Normal", "reason": reason, "message": message, "lastTimestamp": stamp(scene.world.now - 60.0)}
        scene.api.told.append(told)


def main(folder: Path | None) -> None:
    """Write the pictures."""
    shown, others = fleet()
    with pytest.MonkeyPatch.context() as patched, sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        browser = playwright.chromium.launch(executable_path=path)
        scene = Scene(shown, patched)
        with_pods(scene)
        patched.setattr("servingpool.cli.fleet.time", SimpleNamespace(time=lambda: shown.world.now))
        scene.store(*stored(shown.world), *others)
        served = Served(scene, browser)
        if folder is None:
            take(served, browser, "/", IMAGES / "dashboard-pools.png", 1180, "dark")
            take(served, browser, f"{ONE}?since=15m", IMAGES / "dashboard-pool.png", 1180, "light")
        else:
            for theme, width in product(("light", "dark"), (1280, 390)):
                take(served, browser, "/", folder / f"pools-{width}-{theme}.png", width, theme)
                take(served, browser, f"{ONE}?since=15m", folder / f"pool-{width}-{theme}.png", width, theme)
        served.stop()
        browser.close()


def take(served: Served, browser: Browser, path: str, file: Path, width: int, theme: Any) -> None:
    """One page as a picture."""
    page: Page = served.open(path, viewport={"width": width, "height": 800}, color_scheme=theme)
    if path != "/":
        page.wait_for_selector("#wide-pods")
    page.screenshot(path=file, full_page=True)
    page.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
