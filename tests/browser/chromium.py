"""Chromium, as it is installed; pages that note their errors and requests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from symalloc.planner.memory_report.function_report import FunctionReport
from symalloc.relax.files.requests import PlanRequest
from symalloc.report.map.page import map_page, plan_data
from symalloc.session.planning import planned_file

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

IMPORTED = Path(__file__).parent.parent / "models" / "imported"
NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium_path() -> str | None:
    """Return where Chromium is, or None; CHROMIUM names another one."""
    found = (shutil.which(name) for name in (os.environ.get("CHROMIUM", ""), *NAMES) if name)
    return next((path for path in found if path is not None), None)


def page_of(model: str, folder: Path, **samples: Any) -> tuple[Path, FunctionReport]:
    """The page of an imported model, written into `folder`, and the report it is made of."""
    request = PlanRequest(path=IMPORTED / f"{model}.json.gz")
    planned = planned_file(request, compare=True, **samples)
    page = folder / f"{model}.html"
    page.write_text(
        map_page(plan_data(planned.file.reports, planned.plan_report, title=model)), encoding="utf-8"
    )
    return page, planned.file.reports[0]


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """A browser; root needs it without its sandbox."""
    from playwright.sync_api import sync_playwright

    path = chromium_path()
    assert path is not None
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


class Opened:
    """A page that was opened, with the errors it made and what it asked for."""

    def __init__(
        self,
        browser: Browser,
        file: Path,
        *,
        size: tuple[int, int] = (1280, 900),
        scheme: Literal["dark", "light"] = "light",
    ) -> None:
        self.page: Page = browser.new_page(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme
        )
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append(f"dialog: {dialog.message}"))
        self.page.on("console", self._said)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())
        self.settle()

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def settle(self) -> None:
        """Wait until what was asked for is drawn: pages draw in the next frame."""
        self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def type(self, field: str, text: object) -> None:
        """Type a text into a field, and leave it."""
        self.page.locator(field).fill(str(text))
        self.page.locator(field).press("Tab")
        self.settle()

    def set(self, **values: int) -> None:
        """Type values of symbols into their fields."""
        for name, value in values.items():
            self.type(f'[data-entry="{name}"]', value)

    def show(self, view: str) -> None:
        """Press the button of a view."""
        self.page.get_by_role("button", name=view, exact=True).click()
        self.settle()

    def go(self, address: str) -> None:
        """Put something behind the `#` of the page's address."""
        self.page.evaluate("(hash) => { location.hash = hash; }", address)
        self.settle()

    def rows(self, table: str, within: str = "") -> list[list[str]]:
        """Return the texts of a table, of all its rows where `within` has a button for more."""
        more = self.page.locator(f"{within} > .more")
        if within and more.count():
            more.click()
        rows: list[list[str]] = self.page.eval_on_selector_all(
            f"{table} tbody tr", "(rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
        )
        return rows

    def numbers(self) -> dict[str, int | None]:
        """Return the bytes beside the bars, by name; None for what is not known."""
        found: dict[str, str] = self.page.eval_on_selector_all(
            "[data-bytes]", "(all) => Object.fromEntries(all.map((e) => [e.dataset.key, e.dataset.bytes]))"
        )
        return {name: int(text) if text else None for name, text in found.items()}
