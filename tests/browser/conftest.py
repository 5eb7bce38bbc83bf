"""A browser for all tests of this folder, and the pages of two models; without Chromium they are skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from symalloc.planner.memory_report.function_report import FunctionReport
from tests.browser.chromium import Opened, chromium_path, page_of, running_chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# sizes that no table shows: below, at and past the declared bounds
SIZES: dict[str, list[dict[str, int]]] = {
    "torch_llama": [{"s20": size} for size in (48, 100, 511, 512, 700)],
    "torch_encoder_decoder": [
        {"s21": 3, "s24": 17, "s31": 1},
        {"s21": 65, "s24": 40, "s31": 9},
        {"s21": 512, "s24": 512, "s31": 64},
    ],
}

Open = Callable[..., Opened]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if find_spec("playwright") is None:
        pytest.skip("playwright is not installed: `pip install --group browser`")
    if chromium_path() is None:
        pytest.skip("there is no Chromium: install it, or name one in CHROMIUM")
    with running_chromium() as found:
        yield found


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model's page, and the report it was made from."""

    name: str
    page: Path
    report: FunctionReport


@pytest.fixture(scope="session", params=SIZES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    name: str = request.param
    page, report = page_of(name, tmp_path_factory.mktemp("pages"), samples=SIZES[name])
    return Model(name=name, page=page, report=report)


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens pages; at the end none of them may have made an error, or asked for anything."""
    opened: list[Opened] = []

    def open_(file: Path, **how: object) -> Opened:
        opened.append(Opened(browser, file, **how))  # type: ignore[arg-type]
        return opened[-1]

    yield open_
    for one in opened:
        asked = [url for url in one.requests if not url.startswith("file:")]
        errors, files = one.errors, one.requests
        one.page.close()
        assert (errors, asked, len(files)) == ([], [], 1)
