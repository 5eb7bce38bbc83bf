"""Reads rules/*.toml into typed rules."""
