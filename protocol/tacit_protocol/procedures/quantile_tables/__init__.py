"""One noisy table of the cells of columns in one place, and whether variables are independent in it."""
