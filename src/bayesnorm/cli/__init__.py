"""The command line: `bayesnorm fit`, `predict`, `drift`, `report`, `serve` and others, with one file per command."""
