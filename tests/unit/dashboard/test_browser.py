"""The pages in Chromium, as a person uses them. Without Chromium these are skipped."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect, sync_playwright

import assets
from servingpool_dashboard.rows import Trouble

from ..cli.recorder import Recorder  # noqa: TID252, tests are no package of an installed name
from ..reconcile.fake_cluster import CORDONED  # noqa: TID252
from .scene import Scene, raw_pod
from .test_pools_page import pool

AXE = Path(__file__).parents[3] / "build/dashboard"
ONE = "/pools/chat/pool"
WAIT = 60_000
"""Milliseconds; a poll takes 5 s, and the machine may be busy."""
expect.set_options(timeout=WAIT)


@pytest.fixture(scope="module")
def chromium(burst: Recorder, recommended: Recorder, paired: Recorder) -> Iterator[Browser]:
    """The browser. What it shows is made before: Playwright keeps an event loop running in this thread."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def axe() -> str:
    """The accessibility checker, fetched once."""
    file = AXE / "axe.min.js"
    if not file.is_file():
        try:
            assets.fetch([assets.AXE], AXE)
        except assets.AssetError as error:
            pytest.skip(f"axe-core cannot be fetched from npm: {error}")
    return file.read_text()


def drawn(page: Page) -> None:
    """Wait until a pool's page listens to keys: its scripts run after the text can be seen, the charts' last."""
    page.wait_for_selector("#charts[data-ready]", state="attached")


class Served:
    """A scene behind a real port, and pages that tell what the browser complains of."""

    def __init__(self, scene: Scene, chromium: Browser) -> None:
        self.scene, self._chromium = scene, chromium
        self.complaints: list[str] = []
        self._server = uvicorn.Server(uvicorn.Config(scene.app, port=0, log_level="critical", lifespan="off"))
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive(), "the server did not start"
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(30)

    def open(self, path: str, **options: Any) -> Page:
        page = self._chromium.new_page(base_url=self.url, **options)
        page.set_default_timeout(WAIT)
        page.on("console", lambda told: self.complaints.append(told.text) if told.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(path)
        if path.startswith("/pools/"):
            drawn(page)
        return page


@pytest.fixture
def served(scene: Scene, chromium: Browser) -> Iterator[Served]:
    site = Served(scene, chromium)
    yield site
    site.stop()


def serious(page: Page, axe: str) -> list[str]:
    """What axe finds to be serious or critical."""
    page.evaluate(axe)  # as the debugger does, so the page's policy does not hinder it
    found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
    return [
        f"{each['id']}: {node['html']}"
        for each in found
        if each["impact"] in {"serious", "critical"}
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_serious_stands_in_anybodys_way(served: Served, axe: str, theme: Any, width: int) -> None:
    served.scene.api.events = [{"type": "ADDED", "object": pool(one.value.replace("_", "-"), one)} for one in Trouble]
    served.scene.board.read()
    served.scene.api.pods = [raw_pod("vllm-5d8f7c9b6c-x2x4z", served.scene.clock() - 9000.0, conditions=[CORDONED])]
    for path in ("/", ONE):
        page = served.open(path, color_scheme=theme, viewport={"width": width, "height": 800})
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        expect(page.locator("#wide-pods")).to_have_count(int(path == ONE))
        assert serious(page, axe) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "only tables scroll sideways"
        page.close()
    assert served.complaints == []


@pytest.mark.parametrize("width", [1280, 360])
def test_the_page_of_a_pool_with_roles_fits_and_can_be_read(
    chromium: Browser, axe: str, roles: Scene, width: int
) -> None:
    served = Served(roles, chromium)
    try:
        page = served.open(ONE, viewport={"width": width, "height": 800})
        expect(page.locator("#wide-roles")).to_contain_text("decode")
        expect(page.locator("figure").nth(1)).to_contain_text("Prefill and decode have a load each: see Roles.")
        assert serious(page, axe) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "only tables scroll sideways"
        assert served.complaints == []
    finally:
        served.stop()


def test_each_chart_is_drawn_and_tells_its_figures(served: Served) -> None:
    page = served.open(ONE)
    titles = page.locator("figcaption").all_inner_texts()
    assert titles == [
        "Replicas",
        "Load, in busy replicas",
        "Time to first token, s",
        "Time per output token, ms",
        "Error budget, times what the SLO allows",
        "Tokens per second",
        "Cost, dollars per hour",
    ]
    blank = """() => [...document.querySelectorAll("canvas")].filter((canvas) => {
        const empty = document.createElement("canvas");
        [empty.width, empty.height] = [canvas.width, canvas.height];
        return empty.toDataURL() === canvas.toDataURL();
    }).length"""
    assert page.locator("canvas").count() == 7
    assert page.evaluate(blank) == 0
    status = served.scene.world.status()
    summary = page.locator("figure .unseen").first
    expect(summary).to_have_text(
        f"Now: ready {status['readyReplicas']}, requested {status['replicas']}, recommended {status['desiredReplicas']}"
    )
    expect(page.locator("figure").nth(3)).to_contain_text("SLO 100 ms")
    expect(page.locator("figure").nth(6)).to_contain_text(f"this fleet ${12 * status['readyReplicas']}")
    first = page.locator("figure").first
    first.focus()
    page.keyboard.press("ArrowLeft")
    expect(summary).to_contain_text("ready unknown")  # ahead of now there is only the forecast
    for _ in range(20):
        page.keyboard.press("ArrowLeft")
    expect(summary).to_contain_text(f"ready {status['readyReplicas']}")
    assert served.complaints == []


def test_search_and_pages_work_by_keyboard_alone(served: Served) -> None:
    served.scene.api.events = [{"type": "ADDED", "object": pool(f"other-{number}")} for number in range(3)]
    served.scene.board.read()
    page = served.open("/")
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.type("llama")
    expect(page.locator("#wide-pools tbody tr")).to_have_count(1)
    assert page.url.endswith("/?q=llama")
    expect(page.locator("#q")).to_be_focused()
    page.locator("#wide-pools tbody a").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("chat/pool")
    drawn(page)
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    assert served.complaints == []


def test_the_table_follows_the_cluster_and_keeps_the_focus(served: Served) -> None:
    page = served.open("/")
    page.evaluate("window.same = true")
    link = page.locator("#wide-pools tbody a")
    link.focus()
    served.scene.api.events = [{"type": "ADDED", "object": pool("late")}]
    served.scene.board.read()
    expect(page.locator("#wide-pools tbody tr")).to_have_count(2)
    expect(page.locator(f'a[href="{ONE}"]')).to_be_focused()
    assert page.evaluate("window.same"), "the page was not loaded again"
    live = page.get_by_role("button", name="Live updates")
    live.click()
    expect(live).to_have_text("Live updates off")


def test_a_theme_once_chosen_stays(served: Served) -> None:
    page = served.open(ONE, color_scheme="light")
    page.get_by_role("button", name="Dark theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.get_by_role("button", name="Light theme")).to_be_visible()
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert served.complaints == []


def test_a_page_says_that_its_command_has_stopped(served: Served) -> None:
    page = served.open(ONE)
    served.stop()
    expect(page.locator("#gone")).to_contain_text("it has stopped")
