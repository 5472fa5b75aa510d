"""Who may ask for the pages, and what a browser may do with them."""

from __future__ import annotations

import pytest

from .scene import Scene

PATHS = ("/", "/rows", "/pools/chat/pool", "/pools/chat/pool/course.json", "/static/page.js", "/nothing")


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost", "LOCALHOST:1", "[::1]:8765", "[::1]"])
def test_our_own_names_are_served(scene: Scene, host: str) -> None:
    assert scene.browser.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "127.0.0.1@evil", "", "::1", "[::2]:80"]
)
@pytest.mark.parametrize("path", PATHS)
def test_another_name_gets_nothing(scene: Scene, host: str, path: str) -> None:
    answer = scene.browser.get(path, headers={"Host": host})
    assert answer.status_code == 421
    assert "pool" not in answer.text


@pytest.mark.parametrize("path", PATHS)
def test_no_answer_lets_scripts_of_others_in(scene: Scene, path: str) -> None:
    headers = scene.browser.get(path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", PATHS)
def test_nothing_can_be_written(scene: Scene, method: str, path: str) -> None:
    assert scene.browser.request(method, path).status_code in {404, 405}


def test_pages_are_not_kept_and_no_asset_comes_from_elsewhere(scene: Scene) -> None:
    assert scene.browser.get("/").headers["Cache-Control"] == "no-store"
    page = scene.page("/pools/chat/pool")
    assert "://" not in page.replace("http://www.w3.org", "")
    assert scene.browser.get("/static/../app.py").status_code == 404
    assert scene.browser.get("/static/").status_code == 404
