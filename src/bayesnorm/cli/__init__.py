"""The command line: `bayesnorm fit`, `predict`, `drift`, `report` and `data`; a file for each command."""
