"""What the engine checks before it calls a backend, each in one sentence."""

from beamsieve.checks.arrays import (
    any_head,
    heads_for,
    level_head,
    prepared_heads,
    slot_values,
    step_inputs,
)
from beamsieve.checks.belonging import (
    a_plan,
    an_index,
    cannot_serve,
    own_beams,
    own_candidates,
    varies_in_length,
)
from beamsieve.checks.requests import (
    a_request_list,
    given_prefixes,
    prefix_lists,
    request_filters,
)
from beamsieve.checks.sizes import LARGEST_STEP, places_for, width_for, widths_for
from beamsieve.checks.values import dtype_name, whole_number

__all__ = [
    "LARGEST_STEP",
    "a_plan",
    "a_request_list",
    "an_index",
    "any_head",
    "cannot_serve",
    "dtype_name",
    "given_prefixes",
    "heads_for",
    "level_head",
    "own_beams",
    "own_candidates",
    "places_for",
    "prefix_lists",
    "prepared_heads",
    "request_filters",
    "slot_values",
    "step_inputs",
    "varies_in_length",
    "whole_number",
    "width_for",
    "widths_for",
]
