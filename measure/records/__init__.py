"""What is known of programs that were measured, in logs.

Reading order: `record` (what a measurement is), `log` (one line of JSON for each) and `append` with `marks`;
`unsaid` (what lines leave out), `settled` (which record of a program counts), `targets` and `groups` (which
records are of one task), `best` and `distill` (how one is chosen).
"""
