"""Sketches written by hand: `choices`, `config` (what they span), `function`, and `reading` records back."""
