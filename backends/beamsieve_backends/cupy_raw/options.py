"""What a config string may say behind the question mark: ``cupy:cuda?early=off``."""

from __future__ import annotations

from beamsieve.errors import BackendError

OPTIONS = {
    "clear_products": ("off", "on"),
    "early": ("on", "off"),
    "replays": ("10", "1"),
    "tile_products": ("planned", "always", "never"),
}
"""The values of each option, the default first."""


def options_of(given: dict[str, str]) -> dict[str, str]:
    """Every option's value, as given or the default one.

    Raises:
        BackendError: an unknown option or value.
    """
    for name, value in given.items():
        if name not in OPTIONS:
            known = ", ".join(map(repr, OPTIONS))
            raise BackendError(f"The backend 'cupy' has no option {name!r}; it has {known}.")
        if value not in OPTIONS[name]:
            known = " or ".join(map(repr, sorted(OPTIONS[name], reverse=True)))
            raise BackendError(f"The backend 'cupy' takes {name} as {known}, not {value!r}.")
    return {name: values[0] for name, values in OPTIONS.items()} | given
