"""A unit of work: a function call as plain values, and a key that is the same everywhere."""

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
    """A call that can run anywhere: `function(**parameters)`, whose result belongs to an experiment.

    Two units of an experiment are the same if their parameters are, in any order; 1 and 1.0 differ. The function's code
    is not part of the key: after a change that makes old results wrong, use a new experiment name. All its randomness
    should come from its parameters.

    Args:
        experiment: Name of the table for the result.
        function: The function, "package.module:name"; it returns plain JSON values, preferably a dict.
        parameters: Keyword arguments of the function: None, booleans, finite numbers, text, and lists and dicts of
            them.
    """

    experiment: str = field(compare=False)
    function: str
    parameters: Mapping[str, Any] = field(compare=False)
    text: str = field(init=False, repr=False, compare=False)
    """The parameters as canonical JSON."""
    key: str = field(init=False, repr=False)
    """Identifies experiment and parameters, 32 hexadecimal digits."""

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
    """Refuse a function's name that another process cannot import."""
    module, _, name = function.partition(":") if isinstance(function, str) else ("", "", "")
    if not all(part.isidentifier() for part in [*module.split("."), *name.split(".")]):
        raise BayesNormError(f'function must be "package.module:name", got {function!r}.')
    if module == "__main__":
        raise BayesNormError(
            f"function: {function!r} is in the running script, which other processes cannot import. Use the name of a "
            'module, "package.module:name".'
        )


def distinct(units: Iterable[Unit]) -> list[Unit]:
    """Return the units without repetitions, in order."""
    results: dict[str, Unit] = {}
    for unit in units:
        if not isinstance(unit, Unit):
            raise BayesNormError(f"units must be experiments.bench.Unit, got {type(unit).__name__}.")
        if results.setdefault(unit.key, unit) != unit:
            raise BayesNormError(
                f"units: {unit.experiment!r} with {unit.text} occurs twice, with the functions "
                f"{results[unit.key].function} and {unit.function}. Use two experiment names."
            )
    return list(results.values())


def _canonical(value: Any) -> str:
    # ASCII only, so that encodings and Unicode versions do not matter; Python writes the shortest digits of a float.
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _plain(value: Any, where: str) -> Any:
    """Return the value as JSON has it, or refuse it with an error that names its place."""
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise BayesNormError(f"{where}: the name {name!r} must be text.")
        return {name: _plain(entry, f"{where}[{name!r}]") for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry, f"{where}[{i}]") for i, entry in enumerate(value)]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise BayesNormError(f"{where} must be finite numbers or text, got {value}.")
        return float(value) + 0.0  # -0.0 becomes 0.0
    if value is None or isinstance(value, bool | int | str):
        return value
    raise BayesNormError(
        f"{where} must be None, booleans, plain numbers, text, and lists and dicts of them, got {type(value).__name__}."
    )
