"""The figures of the CUDA road, each beside the peer's from the same run."""
