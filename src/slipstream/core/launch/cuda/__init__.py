"""Launching on CUDA devices: streams, windows, the graph memo, modules, copies."""
