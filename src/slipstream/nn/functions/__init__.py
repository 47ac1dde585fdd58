"""Functions of nn.functional that are made of ops, by family."""
