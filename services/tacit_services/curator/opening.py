"""What a curator does with its folder of rows before it serves."""

import secrets
from functools import partial

import sqlalchemy as sa
import structlog
from sqlalchemy.engine import Connection, Engine

from tacit_services.curator.data_sets import DataSets
from tacit_services.curator.storage_keys import StorageKeyError
from tacit_services.curator.store import RowStore
from tacit_services.curator.tables import STORAGE
from tacit_services.shared.database import run_transaction
from tacit_services.shared.settings import SettingsError

log = structlog.get_logger()


def open_storage(engine: Engine, store: RowStore, data_sets: DataSets) -> None:
    """Take the folder, remove what stopped uploads left, and wrap every data key by the first storage key.

    Raises:
        SettingsError: the folder is another's, or a storage key is missing that held rows need.
    """
    store.acquire()
    try:
        store.bind(run_transaction(engine, _storage_id))
        rewrapped = run_transaction(engine, partial(_rewrap, store=store, data_sets=data_sets))
        files = [stored.file for stored in run_transaction(engine, data_sets.stored, read_only=True)]
        log.info("storage_opened", files=len(files), removed=store.sweep(files), rewrapped=rewrapped)
    except StorageKeyError as error:
        store.release()
        raise SettingsError(f"storage_keys_file: {error}") from None
    except BaseException:
        store.release()
        raise


def _storage_id(connection: Connection) -> str:
    known = connection.execute(sa.select(STORAGE.c.id)).scalar_one_or_none()
    if known is not None:
        return str(known)
    made = secrets.token_hex(16)
    connection.execute(STORAGE.insert().values(id=made))
    return made


def _rewrap(connection: Connection, *, store: RowStore, data_sets: DataSets) -> int:
    rewrapped = 0
    for stored in data_sets.stored(connection):
        wrapped_key = store.rewrapped(stored)
        if wrapped_key is None:
            store.require_key(stored)
        else:
            data_sets.set_wrapped_key(connection, stored, wrapped_key)
            rewrapped += 1
    return rewrapped
