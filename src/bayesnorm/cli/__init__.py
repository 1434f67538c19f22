"""The command line: `bayesnorm fit`, `predict`, `drift`, `report`, `maps` and `data`, with one file per command."""
