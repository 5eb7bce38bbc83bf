"""Renders a report: text, concise lines, JSON, SARIF, GitHub annotations; one file per format."""
