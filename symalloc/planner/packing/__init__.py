"""Packing problems of their own: `symalloc pack`."""
