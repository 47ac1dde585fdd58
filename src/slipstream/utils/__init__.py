"""Helpers that stand beside nn and optim."""
