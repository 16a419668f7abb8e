"""Alembic's environment for every component: it runs on the connection that ``upgrade`` hands it."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table=context.config.attributes["version_table"],
)
context.run_migrations()
