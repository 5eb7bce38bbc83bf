"""Processes that TVM may crash in."""
