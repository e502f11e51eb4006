"""``python -m beamsieve``: the command line, where ``beamsieve`` is not on the path."""

from beamsieve.cli import main

if __name__ == "__main__":
    main()
