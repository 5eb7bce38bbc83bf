"""Draw the pictures of docs/memory-map.md again: `python -m tests.browser.screenshots`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from tests.browser.chromium import Opened, page_of, running_chromium

ROOT = Path(__file__).parent.parent.parent
IMAGES = ROOT / "docs" / "images"
SIZE = (1080, 980)
# model, the address of what is shown, the scheme, and the tensor that is pointed at
SHOWN: dict[str, tuple[str, str, Literal["light", "dark"], str]] = {
    "map_llama_64": ("torch_llama", "s20=64", "light", "alloc95"),
    "map_llama_512": ("torch_llama", "s20=512", "dark", "alloc95"),
    "map_whisper_encoder_4": ("torch_whisper_encoder", "s21=4&--view=tvm_bounded&--budget=2MiB", "light", ""),
    "map_whisper_encoder_64": ("torch_whisper_encoder", "s21=64&--view=unplanned", "dark", "alloc9"),
}


def main() -> None:
    """Write the pictures."""
    IMAGES.mkdir(exist_ok=True)
    with running_chromium() as browser, TemporaryDirectory() as folder:
        for image, (model, address, scheme, tensor) in SHOWN.items():
            page, _ = page_of(model, Path(folder))
            opened = Opened(browser, page, size=SIZE, scheme=scheme)
            opened.go(address)
            if tensor:
                opened.page.locator(f'#map .block[aria-label^="{tensor} "]').first.click(force=True)
            opened.page.mouse.move(2, 2)
            opened.page.evaluate("document.activeElement.blur()")
            opened.page.evaluate("window.scrollTo(0, 0)")
            opened.settle()
            opened.page.screenshot(path=IMAGES / f"{image}.png")
            opened.page.close()


if __name__ == "__main__":
    main()
