"""The second oracle: mutants are compiled and run on TVM's virtual machine, in memory whose misuse shows."""
