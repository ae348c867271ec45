"""Runs the program: `kindling` and `python -m kindling`."""

import os
import sys

from kindling import program


def main():
    try:
        path = program()
    except RuntimeError as error:
        sys.exit(f"kindling: error: {error}")
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
