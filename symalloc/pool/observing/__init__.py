"""Statistics, watermarks, recordings, leaks and exports of a native pool."""
