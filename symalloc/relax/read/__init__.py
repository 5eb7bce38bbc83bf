"""Files read in: TVMScript without running what it may bring, and TVM's JSON."""
