"""Feature maps: bounded vectors of a row, with their sensitivities. Knows no message."""
