"""CUDA kernels: the prelude, the schedules of programs, and a file per family."""
