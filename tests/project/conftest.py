"""The apps of all services, for what is compared with their routes."""

import pytest
from fastapi import FastAPI
from service_apps import SERVICES


@pytest.fixture(scope="session")
def apps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FastAPI]:
    """Every service's app, by its name."""
    folder = tmp_path_factory.mktemp("apps")
    return {name: make(folder / name) for name, make in SERVICES.items()}
