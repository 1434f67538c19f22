"""The command line: `bayesnorm fit`, `predict`, `report` and `data`; a file for each command."""
