"""Kernels as they are executed: an interpreter, and operators whose kernels TVM makes."""
