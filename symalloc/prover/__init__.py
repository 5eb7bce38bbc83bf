"""Sorting constraints into always-valid, always-invalid and runtime-check, by proof.  The only room that
imports z3.
"""
