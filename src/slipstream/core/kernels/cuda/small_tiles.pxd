# Compiled as it stands: nothing of it is declared.
