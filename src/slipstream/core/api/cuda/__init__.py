"""What `slipstream.cuda` offers, on the launching layers."""
