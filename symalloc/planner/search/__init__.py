"""The search over stackings, scored over the whole domain."""
