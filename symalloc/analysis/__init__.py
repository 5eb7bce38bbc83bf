"""What can be known of a memory program: one dataflow engine, each analysis once."""
