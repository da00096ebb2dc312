"""A real Chromium. Console errors, CSP violations and requests to other hosts fail the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.factories import PASSWORD
from tests.servers import need_program

HANG_MS = 240_000  # ends a test that hangs; no measure of speed
expect.set_options(timeout=HANG_MS)
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Watch:
    """What went wrong in the browser."""

    base: str
    faults: list[str] = field(default_factory=list)
    refusal: str = ""  # the status that a test provokes, which Chromium reports on its console

    def over(self, page: Page) -> None:
        """Listen to a page. A violation of the CSP is an error on the console."""
        page.on("console", lambda m: self._line(m.type, m.text))
        page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        page.on("request", lambda r: self._request(r.url))

    def _line(self, kind: str, text: str) -> None:
        if kind == "error" and not (self.refusal and f"status of {self.refusal}" in text):
            self.faults.append(f"console: {text}")

    def _request(self, url: str) -> None:
        if not url.startswith((self.base, "data:", "blob:")):
            self.faults.append(f"external request: {url}")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = need_program("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def watch(live_server) -> Iterator[Watch]:
    """Faults of all pages of the test; any at its end fails it."""
    watch = Watch(live_server.url)
    yield watch
    assert watch.faults == []


OpenPage = Callable[..., Page]


@pytest.fixture
def enter(browser: Browser, live_server, watch: Watch) -> Iterator[OpenPage]:
    """Sign in through the form, in a window of one's own."""
    contexts = []

    def sign_in(user: User, *, width: int = 1440, scheme: str = "light") -> Page:
        context = browser.new_context(
            base_url=live_server.url, viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(HANG_MS)
        watch.over(page)
        page.goto("/login/")
        page.get_by_label("Name").fill(user.username)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{live_server.url}/")
        return page

    yield sign_in
    for context in contexts:
        context.close()
