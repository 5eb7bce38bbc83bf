"""A planned function written as Relax."""
