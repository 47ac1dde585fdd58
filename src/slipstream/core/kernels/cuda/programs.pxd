# Compiled as it stands: new sizes are bound here.
