"""The command line.

What stands here imports next to nothing, so that Ctrl-C is answered while the rest is imported;
heavy imports wait inside the commands, so that ``--help`` answers at once.
"""

from beamsieve.cli import interrupts

TYPE_CHECKING = False  # as in typing, whose import takes longer than all that stands here
if TYPE_CHECKING:
    from beamsieve.cli.commands import app

__all__ = ["app", "main"]


def main() -> None:
    """Entry point of ``beamsieve``."""
    interrupts.end_at_once()
    from beamsieve.cli.commands import run

    run()


if not TYPE_CHECKING:  # which would take any name for known

    def __getattr__(name: str) -> object:
        if name == "app":
            from beamsieve.cli.commands import app

            return app
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
