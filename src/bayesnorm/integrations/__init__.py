"""bayesnorm in other tools: one module each, which needs the package of its name."""
