"""Compares two plans of one module: what of the memory grew, and where."""
