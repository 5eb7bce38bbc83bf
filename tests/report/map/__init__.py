"""The memory map: formulas in JavaScript, the page, the picture."""
