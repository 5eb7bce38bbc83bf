"""The memory report of a plan: its bytes over shapes, and the memory in no arena."""
