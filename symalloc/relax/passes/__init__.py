"""Passes for TVM's pipelines, and the pipelines."""
