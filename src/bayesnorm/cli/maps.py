"""`bayesnorm maps`: segment a folder of images and write maps of labels and uncertainty."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

from ..errors import quoted
from ..files import file_digest, read_json_file
from ..words import format_count
from ..writing import resolved, write_bytes
from .ending import UsageError
from .options import AsJson, option
from .printing import escape_controls, note, show_json, show_pairs

OPTIONS, POSTERIOR, PAGE = "maps.json", "posterior.bayesnorm", "maps.html"
METHODS = ("MCBN", "GaussianBN", "StochasticBN")


def maps(
    model: Annotated[str, option("MODULE:FUNCTION", "Function that returns the network. This command runs its code.")],
    train: Annotated[Path, option("DIR", "Folder with training images, all or some of them.")],
    images: Annotated[Path, option("DIR", "Folder with the images to segment.")],
    out: Annotated[Path, option("DIR", "Folder for the results. It is created if needed.")],
    weights: Annotated[
        Path | None,
        option(
            "FILE",
            "Weights of the network: a safetensors file, or a torch.save file that contains only tensors.",
            "the weights that FUNCTION returns",
        ),
    ] = None,
    settings: Annotated[
        Path | None,
        option("FILE", "JSON file with size, mean, std, classes, colours and ignore.", "MAPS in the module"),
    ] = None,
    truth: Annotated[
        Path | None, option("DIR", "Folder with true labels: images of class numbers with the same file names.")
    ] = None,
    method: Annotated[str, option("", f"Method for the epistemic uncertainty: {', '.join(METHODS)}.")] = "MCBN",
    batch_size: Annotated[int, option("", "Batch size that the network was trained with.", min=2)] = 8,
    states: Annotated[int, option("", "Number of training batches whose batch statistics are stored.", min=2)] = 32,
    samples: Annotated[int, option("", "Samples per image. Each sample costs one forward pass.", min=2)] = 16,
    tile: Annotated[
        int | None, option("PIXELS", "Side of the tiles that large images are split into.", "no tiles", min=16)
    ] = None,
    overlap: Annotated[int | None, option("PIXELS", "Overlap of neighbouring tiles.", min=0)] = None,
    shown: Annotated[int, option("", "Number of images on the page, most uncertain first.", min=1, max=60)] = 12,
    device: Annotated[str, option("", "Device that runs the network: cpu or cuda.")] = "cpu",
    as_json: AsJson = False,
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
    if resolved(out, "--out").exists() and not out.is_dir():
        raise UsageError(f"--out: {out} is a file. Pass the name of a folder.")
    if method not in METHODS:
        raise UsageError(f"--method must be one of {', '.join(METHODS)}, got {method!r}.")
    from .. import maps as package, methods
    from ..likelihoods import Categorical
    from ..posterior import load
    from ..report import MapsReport, Provenance, can_write_pages, write_report

    network, module = package.load_network(model, weights)
    if settings is None:
        map_settings = package.MapSettings.from_json(getattr(module, "MAPS", {}), f"MAPS of {module.__name__}")
    else:
        map_settings = package.read_settings(settings)
    network = network if map_settings.output is None else package.Entry(network, map_settings.output).eval()
    try:
        network = network.to(device)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"--device: the network cannot run on {quoted(device)} ({error}). Use cpu or cuda.") from error
    training, new_images = package.image_files(train, "--train"), package.image_files(images, "--images")
    code = getattr(module, "__file__", None)
    options = {
        "model": model,
        "code": None if code is None else file_digest(Path(code)),
        "weights": package.digest_of_weights(network),
        "settings": map_settings.as_json(),
        "method": {"name": method, "batch_size": batch_size, "states": states, "samples": samples},
        "tiles": [tile, overlap],
        "training images": package.digest_of_files(training, train),
    }
    out.mkdir(parents=True, exist_ok=True)
    quiet = as_json or not sys.stderr.isatty()
    if _stored_posterior(out, options):
        posterior = load(out / POSTERIOR, network)
    else:
        note(f"Collecting the statistics of {states} batches of {batch_size} training images ...")
        likelihood = Categorical(ignore_index=map_settings.ignore)
        training_images = package.ImageFiles(training, map_settings)
        posterior = getattr(methods, method)(batch_size, states=states).fit(network, training_images, likelihood)
        posterior.save(out / POSTERIOR)
        stored = {"options": options, "posterior": file_digest(out / POSTERIOR)}
        write_bytes(out / OPTIONS, json.dumps(stored, indent=1).encode())

    def progress(done: int, total: int) -> None:
        if not quiet:
            end = "\n" if done == total else ""
            print(f"\r{done} of {format_count(total, 'image')}", end=end, file=sys.stderr, flush=True)

    image_maps = package.map_images(
        posterior,
        new_images,
        map_settings,
        out,
        samples=samples,
        tile=None if tile is None else (tile, tile),
        overlap=overlap,
        truth=truth,
        progress=progress,
    )
    counts, right, labelled = _levels(image_maps)
    has_page = can_write_pages()
    if has_page:
        count = image_maps[0].classes
        classes = list(zip(map_settings.class_names(count), map_settings.class_colours(count), strict=True))
        command = shlex.join(["bayesnorm", "maps", "--model", model, "--images", str(images), "--out", str(out)])
        pictures = [package.mapped_image(maps_of_image, map_settings, truth) for maps_of_image in image_maps[:shown]]
        title, provenance = escape_controls(images.resolve().name), Provenance.now(command)
        write_report(
            MapsReport(title, pictures, len(image_maps), counts, right, labelled, classes, provenance), out / PAGE
        )
    _print_summary(image_maps, right, labelled, out, has_page, as_json)


def _levels(image_maps: list[Any]) -> list[Any]:
    """Return the sums over all images of `counts`, `right` and `labelled`; None for those that no image has."""
    parts = [[getattr(image, name) for image in image_maps] for name in ("counts", "right", "labelled")]
    return [None if part[0] is None else sum(part) for part in parts]


def _stored_posterior(out: Path, options: dict[str, Any]) -> bool:
    """Return whether a folder has the posterior of these options; raise an error if its maps have other options."""
    path = out / OPTIONS
    if not path.exists():
        return False
    try:
        stored = read_json_file(path)
        before, digest = dict(stored["options"]), stored["posterior"]
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise UsageError(f"--out: {path} is damaged or of an earlier version. Use another folder.") from error
    plain = json.loads(json.dumps(options))
    other = next((name for name in plain if before.get(name) != plain[name]), None)
    if other is not None:
        raise UsageError(f"--out: {out} contains maps that were made with other inputs ({other}). Use another folder.")
    return (out / POSTERIOR).is_file() and file_digest(out / POSTERIOR) == digest


def _print_summary(image_maps: list[Any], right: Any, labelled: Any, out: Path, has_page: bool, as_json: bool) -> None:
    """Print the accuracy, the most uncertain images, and where the results are."""
    from ..report import WITHOUT_PAGE

    accuracy = None if right is None else float(right.sum() / max(1, labelled.sum()))
    page = str(out / PAGE) if has_page else None
    if as_json:
        entries = [
            {
                "image": str(image_map.path),
                "entropy": image_map.mean_entropy,
                "mutual_information": image_map.mean_mutual_information,
                "accuracy": image_map.accuracy,
            }
            for image_map in image_maps
        ]
        show_json({"images": entries, "accuracy": accuracy, "out": str(out), "page": page})
        return
    first = ", ".join(f"{image_map.path.name} ({image_map.mean_entropy:.0%})" for image_map in image_maps[:3])
    lines = {"images": f"{len(image_maps)}", "most uncertain": first}
    if accuracy is not None:
        lines["accuracy"] = f"{accuracy:.1%} of the pixels"
    show_pairs({**lines, "list": str(out / "images.csv"), "page": page or WITHOUT_PAGE})
