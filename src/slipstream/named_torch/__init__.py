"""A folder for sys.path: below it Slipstream is named ``torch`` (see `slipstream run`)."""
