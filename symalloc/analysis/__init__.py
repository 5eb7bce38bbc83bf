"""Analyses of the IR: each analysis once."""
