"""The simulated driver."""
