"""The command line: `ansor ...` and `python -m ansor ...`. All of it lives in `search.cli.main`."""

import sys

from ansor.command import Command


def main() -> None:
    """Run the command that the process was started with, and exit with its code."""
    command = Command()
    command.take_signals()
    from ansor.siblings import check_siblings

    check_siblings()
    from search.cli.main import run

    command.run(lambda: run(sys.argv[1:]))


if __name__ == "__main__":
    main()
