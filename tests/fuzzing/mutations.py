"""Change valid files at random into ones that no writer writes, under a digest that fits."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor

from bayesnorm import files

RAW = {"@huge@": "1e400", "@deep@": "[" * 5000 + "]" * 5000, "@digits@": "9" * 6000}
"""JSON that Python does not write, by the text that stands for it."""

MARKUP = "</script><script>alert(1)</script>"
"""Text that must not become part of a page."""

VALUES: list[Any] = [
    *(None, True, False, 0, 1, 2, 3, -1, 7, 64, 20_000, 300_000, 10**9, 2**63, 10**30),
    *(0.5, -0.5, 1e-3, 1e-30, 5e-324, 1e30, 1e300, -1e300, math.nan, math.inf, 1e-45),
    *("", "x", "1", "nan", "1+2j", "running", "batch", "<U400000000", "complex128", "a" * 100_000, "\ud800", "=1+1"),
    *("\x1b[2J", MARKUP, "../x", "number", "day first", ","),
    *([], {}, [0], [1, 2, 3], [20_000, 20_000], [[]], [None] * 1000, {"kind": "deterministic"}, {"x": 1}, ["a", "a"]),
    *RAW,
]
"""Values that take the place of others."""

DTYPES = [torch.int64, torch.float16, torch.bfloat16, torch.float64, torch.float32, torch.complex64, torch.bool]
NUMBERS = [math.nan, math.inf, -math.inf, 1e30, -1e30, 0.0, -1.0, 100.0]


BYTES = b'0129-.eE[]{}",:\\a\x00\xff'
"""Bytes that take the place of others in the description of the tensors."""


def places(value: Any, above: Any = None, key: Any = None) -> Iterator[tuple[Any, Any]]:
    """Yield (container, key) of everything inside JSON values."""
    if above is not None:
        yield above, key
    if isinstance(value, dict | list):
        for inner in list(value) if isinstance(value, dict) else range(len(value)):
            yield from places(value[inner], value, inner)


def change_json(config: Any, chance: random.Random) -> None:
    """Change one value, name or entry."""
    container, key = chance.choice(list(places(config)))
    what = chance.choice(["value", "value", "value", "number", "drop", "add", "twin", "swap", "rename"])
    old = container[key]
    if what == "value" or (what == "number" and not isinstance(old, int | float)):
        container[key] = copy.deepcopy(chance.choice(VALUES))
    elif what == "number":
        container[key] = old * chance.choice([-1, 0, 2, 0.5, 1e3, 1e9, 1e-9]) + chance.choice([0, 1, -1, 0.5])
    elif what == "drop":
        del container[key]
    elif what == "add" and isinstance(container, dict):
        container[chance.choice(["more", "kind", "name", ""])] = copy.deepcopy(chance.choice(VALUES))
    elif what in ("add", "twin") and isinstance(container, list):
        container.insert(key, copy.deepcopy(old))
    elif what == "swap":
        container[key] = copy.deepcopy(chance.choice([above[inner] for above, inner in places(config)]))
    elif isinstance(container, dict):
        name = chance.choice(list(container)) + chance.choice(["", "x"])
        container[name] = container.pop(key)


def change_tensors(tensors: dict[str, Tensor], chance: random.Random) -> None:
    """Change one tensor."""
    if not tensors:
        tensors["more"] = torch.zeros(2)
        return
    name = chance.choice(sorted(tensors))
    old = tensors[name]
    other = tensors[chance.choice(sorted(tensors))]
    ways: dict[str, Callable[[], Tensor]] = {
        "number": lambda: with_number(old, chance.choice(NUMBERS), chance),
        "all numbers": lambda: torch.full_like(old.double(), chance.choice(NUMBERS)).to(old.dtype),
        "scale": lambda: (old.double() * chance.choice([-1, 1e3, 1e20, 1e-20])).to(old.dtype),
        "dtype": lambda: old.to(chance.choice(DTYPES)),
        "flat": lambda: old.flatten(),
        "axis": lambda: old[None],
        "turned": lambda: old.movedim(0, -1) if old.dim() else old[None],
        "empty": lambda: old.flatten()[:0].reshape((0, *old.shape[1:])),
        "shorter": lambda: old[:-1] if old.dim() else old[None],
        "longer": lambda: torch.cat([old, old]) if old.dim() else old.expand(2),
        "another": lambda: other,
        "long": lambda: torch.zeros(100_000, dtype=torch.uint8),
    }
    what = chance.choice([*ways, "drop", "rename", "add"])
    if what in ways:
        tensors[name] = ways[what]().clone(memory_format=torch.contiguous_format)
    elif what == "add":
        tensors[chance.choice(["more", f"{name}.more", "components", "weight"])] = old.clone()
    else:
        tensor = tensors.pop(name)
        if what == "rename":
            tensors[name[:-1] + chance.choice(["", "x"])] = tensor


def with_number(tensor: Tensor, number: float, chance: random.Random) -> Tensor:
    """Return a tensor with one entry that is another number."""
    result = tensor.double().flatten().clone()
    if len(result):
        result[chance.randrange(len(result))] = number
    return result.reshape(tensor.shape).to(tensor.dtype)


def mutated(path: Path, seed: int) -> bytes:
    """Return a valid file's content with one to three changes; same seed, same changes."""
    chance = random.Random(seed)
    tensors, header = files.read_tensors(path)
    config = json.loads(header["config"])
    for _ in range(chance.choice([1, 1, 2, 3])):
        if chance.random() < 0.65 and any(places(config)):
            change_json(config, chance)
        else:
            change_tensors(tensors, chance)
    text = json_text(config, chance)
    header |= {"config": text, "digest": files.content_digest(tensors, text)}
    content = bytearray(to_bytes(tensors, metadata=header))
    if chance.random() < 0.1:  # the description of the tensors itself
        length = int.from_bytes(content[:8], "little")
        for _ in range(chance.choice([1, 1, 3])):
            content[chance.choice([chance.randrange(8), chance.randrange(8, 8 + length)])] = chance.choice(BYTES)
    return bytes(content)


def json_text(config: Any, chance: random.Random, **options: Any) -> str:
    """Return JSON values as text, some of it as Python does not write it."""
    text = json.dumps(config, **{"sort_keys": True} | options)
    if chance.random() < 0.02 and text.startswith("{") and text != "{}":
        text = "{" + text[1:-1] + ", " + text[1:]  # every name twice
    for name, raw in RAW.items():
        text = text.replace(f'"{name}"', raw)
    return text


def changed_bytes(content: bytes, chance: random.Random) -> bytes:
    """Return bytes with one to five changes."""
    result = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 5])):
        place = chance.choice([chance.randrange(len(result) + 1), max(0, len(result) - chance.randrange(1, 400))])
        what = chance.choice(["byte", "byte", "byte", "cut", "insert", "twice", "huge"])
        if what == "byte" and place < len(result):
            result[place] = chance.randrange(256)
        elif what == "cut":
            del result[place : place + chance.choice([1, 100, 10**6])]
        elif what == "insert":
            result[place:place] = chance.choice([b"\0", b'"', b"\n", b"\x1b", b"\xff\xff\xff\x7f", b"1" * 5000, b"{"])
        elif what == "twice":
            result[place:place] = result[place : place + chance.choice([2, 1000])]
        else:
            result[place : place + 4] = b"\xff\xff\xff\x7f"
    return bytes(result)
