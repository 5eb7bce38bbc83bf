"""Outputs written into inputs that the caller donates."""
