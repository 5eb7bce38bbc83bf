"""Extraction for planning: which tensors of a function become buffers, how large, in which arena."""
