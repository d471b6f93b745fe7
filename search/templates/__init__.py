"""Policies over sketches written by hand: a `task`, the `tuner`s, one that learns (`xgb`), and `history`."""
