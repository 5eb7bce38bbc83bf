"""Planning a module of a file: read, lowered, planned, compared, written."""
