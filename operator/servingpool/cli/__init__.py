"""The command line, and with it the composition root."""
