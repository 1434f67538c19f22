"""Speed, cost and quality beside other libraries: `python -m benchmarks.inference` and the others, from a checkout."""
