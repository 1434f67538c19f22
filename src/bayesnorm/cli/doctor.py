"""`bayesnorm doctor`: what works with a network, what it costs on this machine, and what is recommended."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..writing import write_bytes
from .printing import escape_controls, note, show_json


def doctor(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION", help="Function that returns the network. This command runs its code."
        ),
    ],
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Weights of the network: a safetensors file, or a torch.save file that contains only tensors.",
            show_default="the weights that FUNCTION returns",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder with training images. The module's MAPS says how to scale them, as for `maps`.",
            show_default="only the layers are examined",
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(min=2, help="Batch size that the network was trained with.", show_default="32, or fewer"),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write the report as a page of HTML.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Examine a network: sampled layers, engines and their cost, statistics, and what is recommended.

    What does not work with the network or its data is a line of the report.

    \b
    Example:
      bayesnorm doctor package.module:make --weights w.safetensors --data DIR
    """
    from ..maps import Entry, ImageFiles, MapSettings, image_files, load_network
    from ..network_report import doctor as examine

    network, module = load_network(model, weights, "MODULE:FUNCTION")
    images: Any = None
    if data is not None:
        settings = MapSettings.from_json(getattr(module, "MAPS", {}), f"MAPS of {module.__name__}")
        images = ImageFiles(image_files(data, "--data"), settings)
        network = network if settings.output is None else Entry(network, settings.output).eval()
    report = examine(network, images, batch_size=batch_size)
    if html is not None:
        write_bytes(html, report.to_html().encode())
        note(f"written: {html}")
    if as_json:
        show_json(report.to_dict())
    else:
        print(escape_controls(str(report), keep="\n"))
