"""From stackings to offsets: max-plus formulas simplified by proved dominance; whole storages."""
