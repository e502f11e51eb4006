"""The errors that beamsieve raises. Each message says what was wrong, where, and what to do."""

from __future__ import annotations


class BeamsieveError(Exception):
    """Base of every error that beamsieve raises on purpose."""


class CatalogError(BeamsieveError, ValueError):
    """A catalog, or one of its rows, cannot be used; names the file, the row and the value."""


class IndexFileError(BeamsieveError, ValueError):
    """An index file is truncated, altered, newer than this library, or not an index at all."""


class CheckpointError(BeamsieveError, ValueError):
    """A model checkpoint is damaged, or fits another catalog."""


class InputError(BeamsieveError, ValueError):
    """An argument of a call has the wrong shape, dtype, device or value."""


class RequestError(InputError):
    """A request's targeting cannot be read; names the request by its position in the batch."""


class BackendError(BeamsieveError, RuntimeError):
    """A backend is not installed, failed to import, or cannot do what was asked of it."""


class TrainingError(BeamsieveError, RuntimeError):
    """Training had to stop; names the step."""
