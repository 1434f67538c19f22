"""Take statistics of training batches: which rows, which layers, which moments."""
