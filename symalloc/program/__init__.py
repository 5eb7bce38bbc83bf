"""What a memory program is, in our own frozen types: nothing here imports TVM."""
