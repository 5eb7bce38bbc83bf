"""Analyses of the IR: one dataflow driver, each analysis once."""
