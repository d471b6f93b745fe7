"""The loop-nest IR: statements, their text, their meaning, and transformations of them."""
