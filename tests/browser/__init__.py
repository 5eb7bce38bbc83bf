"""Pages in a real browser: Chromium without a window, driven by Playwright.  `make browser` runs these."""
