"""Pages of all services: signing in, forms, headers, templates and charts."""
