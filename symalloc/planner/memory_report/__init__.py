"""What there is to say about a plan: its bytes over shapes, and the memory around it."""
