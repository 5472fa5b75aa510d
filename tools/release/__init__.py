"""What a release has, and how each part is tried as its user gets it: `make release`."""
