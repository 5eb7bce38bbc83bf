"""The memory map: plans and traces as a page for a browser, and as a picture."""
