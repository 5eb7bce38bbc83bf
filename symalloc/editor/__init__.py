"""The language server: findings, sizes and fixes in an editor.  Only this room imports pygls."""
