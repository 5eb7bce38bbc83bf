"""Draw the pictures of docs/memory-map.md again: `python -m tests.browser.screenshots`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from tests.browser.chromium import Opened, page_of, running_chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parent.parent.parent
IMAGES = ROOT / "docs" / "images"
SIZE = (1080, 980)
# model, symbol, its values, and the tensor that is pointed at
SHOWN: tuple[tuple[str, str, tuple[int, int], str], ...] = (
    ("torch_llama", "s20", (64, 512), "alloc95"),
    ("torch_whisper_encoder", "s21", (4, 64), "alloc9"),
)


def main() -> None:
    """Write two pictures of each model, the second one dark."""
    IMAGES.mkdir(exist_ok=True)
    with running_chromium() as browser, TemporaryDirectory() as folder:
        for model, symbol, values, tensor in SHOWN:
            page, _ = page_of(model, Path(folder))
            schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
            for value, scheme in zip(values, schemes, strict=True):
                image = IMAGES / f"map_{model.removeprefix('torch_')}_{value}.png"
                _draw(browser, page, image, {symbol: value}, tensor, scheme)


def _draw(
    browser: Browser,
    file: Path,
    image: Path,
    binding: dict[str, int],
    tensor: str,
    scheme: Literal["light", "dark"],
) -> None:
    opened = Opened(browser, file, size=SIZE, scheme=scheme)
    opened.set(**binding)
    opened.page.locator(f'#map .block[aria-label^="{tensor}:"]').click(force=True)
    opened.page.mouse.move(2, 2)
    opened.page.evaluate("document.activeElement.blur()")
    opened.page.evaluate("window.scrollTo(0, 0)")
    opened.settle()
    opened.page.screenshot(path=image)
    opened.page.close()


if __name__ == "__main__":
    main()
