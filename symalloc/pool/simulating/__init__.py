"""Traces, and what the reference and other pools would reserve for them."""
