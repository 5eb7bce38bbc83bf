"""Rules applied to the sites of a program."""
