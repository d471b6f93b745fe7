"""Graphs, transform steps, states, bound inference, lowering: from what to compute to a loop nest."""
