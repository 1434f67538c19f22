"""Describe which layers of a network write, carry and read the same units.

A *unit* is a channel of a signal between layers: a filter of a convolution or an output of a linear layer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

OUTPUTS = "they are the network's outputs"
"""Why a network's outputs cannot be removed."""


@dataclass
class Units:
    """Units of a network by layer; lists have the number of a unit for every channel.

    Args:
        written: Layers and the units of their outputs.
        read: Layers and the units of their inputs; None for the network's inputs and unknown ones.
        carried: Batch norm and grouped convolutions, and the units of their outputs.
        kept: Units that cannot be removed, and why.
        normalised: Layers and the batch norm that directly follows them.
        nonzero_at_zero: Units that pass an activation which maps zero to another value.
        gates: Layers whose outputs only multiply units; a removed unit needs no removed gate.
    """

    written: dict[str, list[int]] = field(default_factory=dict)
    read: dict[str, list[int | None]] = field(default_factory=dict)
    carried: dict[str, list[int]] = field(default_factory=dict)
    kept: dict[int, str] = field(default_factory=dict)
    normalised: dict[str, str] = field(default_factory=dict)
    nonzero_at_zero: set[int] = field(default_factory=set)
    gates: set[str] = field(default_factory=set)
