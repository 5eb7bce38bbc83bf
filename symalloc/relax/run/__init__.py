"""Running modules on TVM's virtual machine, and what that uses."""
