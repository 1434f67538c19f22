"""Benchmarks of speed, memory and quality, alone and beside other libraries. Run them from a checkout."""
