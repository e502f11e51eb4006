"""The command line. Heavy imports wait inside the commands, so that ``--help`` answers at once."""

from beamsieve.cli.app import app, main

__all__ = ["app", "main"]
