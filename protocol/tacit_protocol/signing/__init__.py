"""Keys, DSSE envelopes and request tokens. Knows no statistics."""
