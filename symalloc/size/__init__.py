"""Size expressions: exact polynomials over shape symbols, conditions on them, reading and writing both."""
