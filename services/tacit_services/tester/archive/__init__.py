"""Archives of ended studies, and what writes and prunes them."""
