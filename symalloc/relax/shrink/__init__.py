"""Kernels rewritten so that they take less memory of their own, before memory is planned."""
