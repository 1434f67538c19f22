"""Join the modules of the page into one HTML file without any other file: `python -m bayesnorm.demo.build`.

The modules are plain ES modules, so that node can test them and editors understand them. Here their imports and exports
are removed and they are written one after the other, each after those that it imports. The numerics run in the page and
in its worker.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from . import PAGE

FOLDER = Path(__file__).parent
LARGEST = 150_000

IMPORT = re.compile(r"^import \{[^}]*\} from \"([^\"]+)\";\n", re.MULTILINE)
DECLARED = re.compile(r"^(?:export )?(?:async )?(?:const|let|class|function\*?) (?:\{ ?)?(\w+)", re.MULTILINE)


def modules(start: Path, before: tuple[Path, ...] = ()) -> list[Path]:
    """Return a module and all that it imports, each after those that it imports, without those that come `before`."""
    result: list[Path] = []
    for name in IMPORT.findall(start.read_text("utf-8")):
        for path in modules((start.parent / name).resolve(), before):
            if path not in result:
                result.append(path)
    return [path for path in [*result, start.resolve()] if path not in before]


def as_script(paths: list[Path]) -> str:
    """Return modules as one script, without imports, exports, comment lines and indentation."""
    parts = []
    for path in paths:
        text = re.sub(r"^export ", "", IMPORT.sub("", path.read_text("utf-8")), flags=re.MULTILINE)
        lines = (line.strip() for line in text.splitlines())
        parts.append("\n".join(line for line in lines if line and not line.startswith("//")))
    return "\n".join(parts)


def require_unique_names(paths: list[Path]) -> None:
    """Raise an error if two modules declare the same name, because they share one scope in the page."""
    owners: dict[str, str] = {}
    for path in paths:
        for name in DECLARED.findall(path.read_text("utf-8")):
            if name in owners:
                raise ValueError(f"{name} is declared in {owners[name]} and in {path.name}. Rename one of them.")
            owners[name] = path.name


def compact(path: Path) -> str:
    """Return a JSON file without blanks."""
    return json.dumps(json.loads(path.read_text("utf-8")), separators=(",", ":"))


def demo_page() -> str:
    """Return the whole page."""
    numerics = modules(FOLDER / "numerics" / "index.js")
    worker = modules(FOLDER / "page" / "worker.js", tuple(numerics))
    main = modules(FOLDER / "page" / "main.js", tuple(numerics))
    require_unique_names([*numerics, *worker])
    require_unique_names([*numerics, *main])
    texts = {
        "style": re.sub(r"\n\s*", "\n", (FOLDER / "page.css").read_text("utf-8")).strip(),
        **{name: compact(FOLDER / f"{name}.json") for name in ("digits", "start")},
        "numerics": as_script(numerics),
        "worker": as_script(worker),
        "page": as_script(main),
    }
    html = (FOLDER / "page.html").read_text("utf-8")
    return re.sub(r"\{\{ (\w+) \}\}", lambda match: texts[match[1]], html)


if __name__ == "__main__":
    content = demo_page()
    PAGE.write_text(content, "utf-8")
    print(f"Wrote {PAGE}: {len(content.encode()):,} bytes of at most {LARGEST:,}.")
