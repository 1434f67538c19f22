"""Print a software bill of materials (CycloneDX 1.5, JSON) of the environment that runs this file.

    PYTHON -I release/bill_of_materials.py bayesnorm

It lists every installed distribution with its version, licence and dependencies, from the installed metadata. Run it in
an environment that holds the package and nothing else.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from importlib.metadata import Distribution, distributions

# What comes with every new environment.
NOT_PARTS = {"pip", "setuptools", "wheel"}


def normalised(name: str) -> str:
    """Return a name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def licences(part: Distribution) -> list[dict[str, object]]:
    """Return the licences that a distribution states: an SPDX expression, or names."""
    if expression := part.metadata.get("License-Expression"):
        return [{"expression": expression}]
    names = [
        line.rpartition("::")[2].strip() for line in part.metadata.get_all("Classifier") or [] if "License ::" in line
    ]
    stated = (part.metadata.get("License") or "").strip().splitlines()
    return [{"license": {"name": name}} for name in names or stated[:1] or ["not stated"]]


def reference(part: Distribution) -> str:
    return f"pkg:pypi/{normalised(part.metadata['Name'])}@{part.version}"


def component(part: Distribution, kind: str = "library") -> dict[str, object]:
    """Return the entry of a distribution."""
    return {
        "type": kind,
        "bom-ref": reference(part),
        "name": part.metadata["Name"],
        "version": part.version,
        "description": part.metadata.get("Summary") or "",
        "licenses": licences(part),
        "purl": reference(part),
    }


def bill_of_materials(root: str) -> dict[str, object]:
    """Return the bill of materials of this environment, whose main part is the distribution `root`."""
    parts = {normalised(part.metadata["Name"]): part for part in distributions()}
    parts = {name: parts[name] for name in sorted(parts) if name not in NOT_PARTS}
    needs = {
        reference(part): sorted(
            {
                reference(parts[name])
                for line in part.requires or []
                if (name := normalised(re.match(r"[\w.-]+", line)[0])) in parts  # type: ignore[index]
            }
        )
        for part in parts.values()
    }
    main = parts.pop(normalised(root))
    components = [component(part) for part in parts.values()]
    # The same content always has the same number.
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([component(main), components], sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        "metadata": {"component": component(main, "application")},
        "components": components,
        "dependencies": [{"ref": name, "dependsOn": others} for name, others in needs.items()],
    }


if __name__ == "__main__":
    print(json.dumps(bill_of_materials(sys.argv[1]), indent=1))
