"""The command line: `main` is the group of commands, and what becomes of errors."""
