"""One unit of work: the call that computes it, as plain values, and a key that is the same everywhere."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from bayesnorm.errors import BayesNormError


@dataclass(frozen=True)
class Unit:
    """A call that can be made anywhere: `function(**parameters)`, whose result belongs to an experiment.

    Two units of an experiment are the same if their parameters are, in whatever order; 1 and 1.0 differ. What the
    function does is no part of the key: after a change that makes old results wrong, name the experiment anew. All its
    randomness should come from its parameters.

    Args:
        experiment: Name of the table that the result goes to.
        function: Place of the function, "package.module:name"; it returns plain JSON values, best a dict.
        parameters: Keyword arguments of the function: None, booleans, finite numbers, text, and lists and dicts of
            them.
    """

    experiment: str = field(compare=False)
    function: str
    parameters: Mapping[str, Any] = field(compare=False)
    text: str = field(init=False, repr=False, compare=False)
    """The parameters as canonical JSON."""
    key: str = field(init=False, repr=False)
    """Names experiment and parameters, 32 hexadecimal digits."""

    def __post_init__(self) -> None:
        if not isinstance(self.experiment, str) or not self.experiment:
            raise BayesNormError(f"experiment must be a name, got {self.experiment!r}.")
        require_function(self.function)
        if not isinstance(self.parameters, Mapping):
            raise BayesNormError(f"parameters must be a dict, got {type(self.parameters).__name__}.")
        text = _canonical(_plain(self.parameters, "parameters"))
        whole = f'{{"experiment":{_canonical(self.experiment)},"parameters":{text}}}'
        object.__setattr__(self, "parameters", MappingProxyType(json.loads(text)))
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "key", hashlib.sha256(whole.encode("ascii")).hexdigest()[:32])


def require_function(function: str) -> None:
    """Refuse a function's name that another process cannot look up."""
    module, _, name = function.partition(":") if isinstance(function, str) else ("", "", "")
    if not all(part.isidentifier() for part in [*module.split("."), *name.split(".")]):
        raise BayesNormError(f'function: {function!r} was given; "package.module:name" would work.')
    if module == "__main__":
        raise BayesNormError(
            f"function: {function!r} is in the script that runs, which other processes cannot import; the name of a "
            'module, "package.module:name", would work.'
        )


def distinct(units: Iterable[Unit]) -> list[Unit]:
    """Return the units without repetitions, in order."""
    found: dict[str, Unit] = {}
    for unit in units:
        if not isinstance(unit, Unit):
            raise BayesNormError(f"units: holds {type(unit).__name__}; experiments.bench.Unit would work.")
        if found.setdefault(unit.key, unit) != unit:
            raise BayesNormError(
                f"units: {unit.experiment!r} with {unit.text} is there twice, with the functions "
                f"{found[unit.key].function} and {unit.function}; two experiment names would work."
            )
    return list(found.values())


def _canonical(value: Any) -> str:
    # ASCII alone, so that no encoding or Unicode version has a say; Python writes the shortest digits of a float.
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _plain(value: Any, where: str) -> Any:
    """Return the value as JSON has it, or refuse it, naming the place where it stands."""
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise BayesNormError(f"{where}: holds the name {name!r}; text would work.")
        return {name: _plain(entry, f"{where}[{name!r}]") for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry, f"{where}[{i}]") for i, entry in enumerate(value)]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise BayesNormError(f"{where} must be finite numbers, or text, got {value}.")
        return float(value) + 0.0  # -0.0 becomes 0.0
    if value is None or isinstance(value, bool | int | str):
        return value
    raise BayesNormError(
        f"{where} must be None, booleans, plain numbers, text, and lists and dicts of them, got {type(value).__name__}."
    )
