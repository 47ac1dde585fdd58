"""The machine's CUDA driver, through NVIDIA's bindings."""
