"""Shared by the command line, Python and the editor: the public functions, sessions, options."""
