"""The memory map: plans and traces as a page for a browser."""
