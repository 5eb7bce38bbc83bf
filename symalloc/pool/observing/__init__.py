"""What stands around a native pool: statistics, watermarks, recordings, leaks, exports."""
