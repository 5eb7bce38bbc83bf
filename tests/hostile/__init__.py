"""Programs that go wrong without a word, each with a harmless twin: what the linter must say of both."""
