"""`bayesnorm maps`: segment a folder of images and write maps of labels and uncertainty."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from ..files import write_bytes
from .pages import WITHOUT_PAGE, can_write_pages
from .printing import note, show_json, show_pairs
from .usage import UsageError
from .versions import all_versions, cpu_name

MADE, POSTERIOR, PAGE = "maps.json", "posterior.bayesnorm", "maps.html"
METHODS = ("MCBN", "GaussianBN", "StochasticBN")


def maps(
    model: Annotated[
        str,
        typer.Option(metavar="MODULE:FUNCTION", help="Function that returns the network. This command runs its code."),
    ],
    train: Annotated[Path, typer.Option(metavar="DIR", help="Folder with training images, all or some of them.")],
    images: Annotated[Path, typer.Option(metavar="DIR", help="Folder with the images to segment.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results. It is created if needed.")],
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Weights of the network: a safetensors file, or a torch.save file that contains only tensors.",
            show_default="the weights that FUNCTION returns",
        ),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="JSON file with size, mean, std, classes, colours and ignore.",
            show_default="MAPS in the module",
        ),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder with true labels: images of class numbers with the same file names."),
    ] = None,
    method: Annotated[str, typer.Option(help=f"Method for the epistemic uncertainty: {', '.join(METHODS)}.")] = "MCBN",
    batch_size: Annotated[int, typer.Option(min=2, help="Batch size that the network was trained with.")] = 8,
    states: Annotated[
        int, typer.Option(min=2, help="Number of training batches whose batch statistics are stored.")
    ] = 32,
    samples: Annotated[int, typer.Option(min=2, help="Samples per image. Each sample costs one forward pass.")] = 16,
    tile: Annotated[
        int | None,
        typer.Option(
            min=16,
            metavar="PIXELS",
            help="Side of the tiles that large images are split into.",
            show_default="no tiles",
        ),
    ] = None,
    overlap: Annotated[int | None, typer.Option(min=0, metavar="PIXELS", help="Overlap of neighbouring tiles.")] = None,
    shown: Annotated[int, typer.Option(min=1, max=60, help="Number of images on the page, most uncertain first.")] = 12,
    device: Annotated[str, typer.Option(help="Device that runs the network: cpu or cuda.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Segment a folder of images and map the uncertainty of every pixel, with a trained batch-normalised network.

    The command writes labels/ and entropy/ (16-bit PNG files in the size of the
    images), images.csv (most uncertain first) and maps.html, a page with a
    threshold slider. Run it again to resume an interrupted run.

    \b
    Example:
      bayesnorm maps --model package.module:make --weights w.safetensors
                     --train DIR --images DIR --out maps
    """
    if method not in METHODS:
        raise UsageError(f"--method must be one of {', '.join(METHODS)}, got {method!r}.")
    from .. import methods
    from ..likelihoods import Categorical
    from ..maps import Entry, ImageFiles, MapSettings, image_files, load_network, map_images, read_settings
    from ..posterior import load
    from ..report.words import count

    network, module = load_network(model, weights)
    if settings is None:
        given = MapSettings.of(getattr(module, "MAPS", {}), f"MAPS of {module.__name__}")
    else:
        given = read_settings(settings)
    network = network if given.output is None else Entry(network, given.output).eval()
    network = network.to(device)
    training, asked = image_files(train, "--train"), image_files(images, "--images")
    made = {
        "model": model,
        "weights": None if weights is None else hashlib.sha256(weights.read_bytes()).hexdigest(),
        "settings": given.as_json(),
        "method": {"name": method, "batch_size": batch_size, "states": states, "samples": samples},
        "tiles": [tile, overlap],
        "training": hashlib.sha256("\n".join(str(path.relative_to(train)) for path in training).encode()).hexdigest(),
    }
    out.mkdir(parents=True, exist_ok=True)
    _require_same(out / MADE, made)
    quiet = as_json or not sys.stderr.isatty()
    if (out / POSTERIOR).exists():
        posterior = load(out / POSTERIOR, network)
    else:
        note(f"Collecting the statistics of {states} batches of {batch_size} training images ...")
        likelihood = Categorical(ignore_index=given.ignore)
        fitted = getattr(methods, method)(batch_size, states=states).fit(
            network, ImageFiles(training, given), likelihood
        )
        fitted.save(out / POSTERIOR)
        posterior = fitted

    def progress(done: int, of: int) -> None:
        if not quiet:
            print(f"\r{done} of {count(of, 'image')}", end="\n" if done == of else "", file=sys.stderr, flush=True)

    square = None if tile is None else (tile, tile)
    found = map_images(
        posterior, asked, given, out, samples=samples, tile=square, overlap=overlap, truth=truth, progress=progress
    )
    written = can_write_pages()
    if written:
        command = shlex.join(["bayesnorm", "maps", "--model", model, "--images", str(images), "--out", str(out)])
        _write_page(found, given, truth, images.resolve().name, command, shown, out / PAGE)
    _tell(found, out, written, as_json)


def _require_same(path: Path, made: dict[str, Any]) -> None:
    """Raise an error if the folder's maps were made with other options; in a new folder, store the options."""
    plain = json.loads(json.dumps(made))
    if not path.exists():
        write_bytes(path, json.dumps(plain, indent=1).encode())
        return
    before = json.loads(path.read_text())
    other = next((name for name in plain if before.get(name) != plain[name]), None)
    if other is not None:
        raise UsageError(f"--out: {path.parent} contains maps that were made with another {other}. Use another folder.")


def _write_page(
    found: list[Any], settings: Any, truth: Path | None, title: str, command: str, shown: int, path: Path
) -> None:
    import numpy as np

    from ..maps.page_pictures import mapped_image
    from ..report import MapsReport, Provenance, write_report

    counts = np.sum([each.counts for each in found], axis=0)
    right, known = (
        None if truth is None else np.sum([getattr(each, name) for each in found], axis=0)
        for name in ("right", "known")
    )
    count = found[0].classes
    classes = list(zip(settings.class_names(count), settings.class_colours(count), strict=True))
    date = datetime.now().astimezone().date().isoformat()
    provenance = Provenance(all_versions(), cpu_name(), date, command)
    images = [mapped_image(each, settings, truth) for each in found[:shown]]
    write_report(MapsReport(title, images, len(found), counts, right, known, classes, provenance), path)


def _tell(found: list[Any], out: Path, written: bool, as_json: bool) -> None:
    accuracy = None
    if found[0].right is not None:
        accuracy = float(sum(each.right.sum() for each in found) / max(1, sum(each.known.sum() for each in found)))
    page = str(out / PAGE) if written else None
    if as_json:
        each = [
            {
                "image": str(m.path),
                "entropy": m.mean_entropy,
                "mutual_information": m.mean_mutual_information,
                "accuracy": m.accuracy,
            }
            for m in found
        ]
        show_json({"images": each, "accuracy": accuracy, "out": str(out), "page": page})
        return
    first = ", ".join(f"{each.path.name} ({each.mean_entropy:.0%})" for each in found[:3])
    told = {"images": f"{len(found)}", "most uncertain": first}
    if accuracy is not None:
        told["accuracy"] = f"{accuracy:.1%} of the pixels"
    show_pairs({**told, "list": str(out / "images.csv"), "page": page or WITHOUT_PAGE})
