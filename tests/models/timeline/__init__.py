"""Programs whose memory over time is held against a counting allocator, one for each construct."""
