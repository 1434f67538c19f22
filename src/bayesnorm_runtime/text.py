"""Write values as text for a reader."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

from .errors import shortened


def format_percent(share: float, decimals: int = 0) -> str:
    """Write 0.91 as "91 %". Less than all never reads as 100 %, and more than none never as 0 %."""
    if share in (0.0, 1.0):
        return f"{round(100 * share)} %"
    least = 10.0 ** (-decimals - 2)
    if 0 < share < 1 and not least / 2 < share < 1 - least / 2:
        return f"over {100 * (1 - least):.{decimals}f} %" if share > 0.5 else f"under {100 * least:.{decimals}f} %"
    return f"{100 * share:.{decimals}f} %".replace("-", "−")


class ShortRepr:
    """Base class of dataclasses with `repr=False`: their `repr` is one line of at most about 1,000 characters."""

    repr_names: ClassVar[tuple[str, ...]] = ()
    """The attributes to show; empty for all fields that are declared with `repr=True`."""

    def __repr__(self) -> str:
        instance: Any = self
        names = self.repr_names or [field.name for field in fields(instance) if field.repr]
        shown = (f"{name}={_brief(getattr(self, name))}" for name in names)
        return shortened(f"{type(self).__name__}({', '.join(shown)})")


def _brief(value: Any) -> str:
    """Return the repr of a value, only the shape of an array, and only the number of several dataclass instances."""
    if hasattr(value, "shape"):
        return f"{type(value).__name__}{tuple(value.shape)}"
    if isinstance(value, tuple | list) and value and is_dataclass(value[0]):
        kinds = Counter(type(one).__name__ for one in value)
        return f"<{' + '.join(f'{count} {kind}' for kind, count in kinds.items())}>"
    return repr(value)
