"""The live terminal view of a lab, and the plain lines for where there is no terminal."""
