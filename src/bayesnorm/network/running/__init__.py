"""Run one network under many states."""
