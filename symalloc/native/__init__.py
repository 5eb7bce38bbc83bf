"""The native library: loading it, and the types of the functions that it registers with tvm-ffi."""
