"""What the pages of all services share: signing in, forms, headers, templates and charts."""
