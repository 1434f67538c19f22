"""The description of a server's addresses: OpenAPI, and a page for people."""

from __future__ import annotations

import html
import json
from typing import Any

from .models import Model

_TYPES = {"BYTES": "string", "BOOL": "boolean", "FP32": "number", "FP64": "number"}


def description(model: Model, version: str) -> dict[str, Any]:
    """Return the description of the addresses as OpenAPI 3.1."""
    address = f"/v2/models/{model.name}"
    paths: dict[str, Any] = {
        "/v2/health/live": {"get": _operation("Whether the server runs.")},
        "/v2/health/ready": {"get": _operation("Whether the model can be asked; status 503 if not.")},
        "/v2": {"get": _operation("Name, version and extensions of the server.")},
        address: {"get": _operation("Names, datatypes and shapes of inputs and outputs.")},
        f"{address}/infer": {
            "post": _operation("Predict tensors: the Open Inference Protocol V2, JSON or binary.", _example(model))
        },
        "/metrics": {"get": _operation("Counters in the text format of Prometheus.")},
    }
    if model.is_table:
        words = 'Predict rows: {"rows": [...]} as application/json, or text/csv with column names in its first line.'
        row = {tensor.name: None for tensor in model.inputs}
        paths["/predict"] = {"post": _operation(words, {"rows": [row]}, _rows(model))}
    return {"openapi": "3.1.0", "info": {"title": f"bayesnorm: {model.name}", "version": version}, "paths": paths}


def page(model: Model, version: str) -> str:
    """Return the description as a page of HTML that loads nothing."""
    parts = [f"<h1>{html.escape(model.name)}</h1><p>Served by bayesnorm {version}; see also "]
    parts.append('<a href="/openapi.json">openapi.json</a> and <a href="/metrics">metrics</a>.</p>')
    for path, methods in description(model, version)["paths"].items():
        for method, operation in methods.items():
            words = html.escape(operation["summary"])
            parts.append(f"<h2>{method.upper()} {html.escape(path)}</h2><p>{words}</p>")
            if "requestBody" in operation:
                body = json.dumps(operation["requestBody"]["content"]["application/json"]["example"], indent=1)
                parts.append(f"<pre>{html.escape(body)}</pre>")
    outputs = "".join(f"<li>{html.escape(tensor.name)} ({tensor.datatype})</li>" for tensor in model.outputs)
    style = "<style>body{font:16px sans-serif;max-width:50em;margin:2em auto}pre{background:#eee;padding:1em}</style>"
    body = "".join(parts) + f"<h2>Outputs</h2><ul>{outputs}</ul>"
    return f'<!doctype html><html lang="en"><title>{html.escape(model.name)}</title>{style}{body}</html>'


def _operation(summary: str, example: Any = None, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    operation: dict[str, Any] = {"summary": summary, "responses": {"200": {"description": "The result."}}}
    if example is not None:
        content = {"application/json": {"schema": schema or {"type": "object"}, "example": example}}
        operation["requestBody"] = {"required": True, "content": content}
        refused = {"400": "The request is wrong.", "429": "Too many requests wait.", "503": "It took too long."}
        operation["responses"] |= {status: {"description": words} for status, words in refused.items()}
    return operation


def _example(model: Model) -> Any:
    """Return a request with one row of zeros or empty texts."""
    inputs = []
    for tensor in model.inputs:
        value: Any = "" if tensor.datatype == "BYTES" else 0
        for size in reversed(tensor.shape):
            value = [value, "..."] if size > 1 else [value]
        entry = {"name": tensor.name, "datatype": tensor.datatype, "shape": [1, *tensor.shape], "data": [value]}
        inputs.append(entry)
    return {"inputs": inputs}


def _rows(model: Model) -> dict[str, Any]:
    columns = {tensor.name: {"type": [_TYPES.get(tensor.datatype, "integer"), "null"]} for tensor in model.inputs}
    row = {"type": "object", "properties": columns, "required": list(columns), "additionalProperties": False}
    return {"type": "object", "properties": {"rows": {"type": "array", "items": row}}, "required": ["rows"]}
