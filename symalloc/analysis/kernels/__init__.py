"""The bodies of kernels: the elements that they read and write, at which indices, in which order."""
