"""Write the keys, secrets, settings and example data that docker-compose.yml mounts.

    docker compose run --rm --build --user "$(id -u):$(id -g)" setup

or, with Tacit's environment on this machine, python deploy/make_federation.py. Everything goes into
deploy/federation, which git ignores and nobody else may enter. It holds the private keys of all parties,
because this federation is all on one machine. In earnest, every owner makes its own.
"""

import argparse
import secrets
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from certificates import dask_secrets, service_secrets

from tacit_protocol.signing import PrivateKey

OWNERS = ("cleveland", "budapest", "long-beach")
COLUMNS = ("age", "sex", "cp", "restecg", "num")
FOLDER_MODE = 0o700
INNER_FOLDER_MODE, FILE_MODE = 0o755, 0o444
"""Containers read the files as users of their own: what is inside is open, the folder around it is closed."""

AGENT = """\
name = "{owner}"
key_file = "/run/secrets/{secret}"
database_url = "sqlite:////var/lib/tacit/agent.sqlite3"
tester_url = "https://tester:8400"
tester_ca_file = "/run/secrets/services_ca"
tester_key = "{tester_key}"
host = "127.0.0.1"
port = 8710
policy_file = "policy.toml"

[[data_sets]]
name = "heart"
source = "/data/heart.csv"
epsilon = 4.0
delta = 4e-5
"""

POLICY = """\
approval = "by-hand"
epsilon_per_study_max = 1.0
delta_per_study_max = 1e-5
units_min = 100
procedures = ["*"]
analysts = ["*"]

[data_sets.heart]
columns = [{columns}]
"""

CURATOR = """\
name = "curator"
url = "https://curator:8720"
host = "0.0.0.0"
port = 8720
tls_certificate_file = "/run/secrets/curator_tls_certificate"
tls_key_file = "/run/secrets/curator_tls_key"
curator_ca_file = "/run/secrets/services_ca"
key_file = "/run/secrets/curator_key"
storage_keys_file = "/run/secrets/curator_storage_keys"
database_url = "sqlite:////var/lib/tacit/curator.sqlite3"
storage_folder = "/var/lib/tacit/rows"
tester_url = "https://tester:8400"
tester_ca_file = "/run/secrets/services_ca"
tester_key = "{tester_key}"
"""

OPERATOR = """\
# What `tacit party invite` needs in the tester's container; the service itself is set up by its environment.
name = "tester"
url = "https://127.0.0.1:8400"
audience = "https://tester:8400"
key_file = "/run/secrets/tester_key"
tls_certificate_file = "/run/secrets/tester_tls_certificate"
tls_key_file = "/run/secrets/tester_tls_key"
tester_ca_file = "/run/secrets/services_ca"
"""

PARTY = """\
name = "analyst"
key_file = "/run/secrets/analyst_key"
tester_url = "https://tester:8400"
tester_key = "{tester_key}"
tester_ca_file = "/run/secrets/services_ca"
"""

STUDY = """\
title = "Do the patients of three hospitals come from one population?"
procedure = "kernel_two_sample"
epsilon = 1.0
delta = 1e-5

[[columns]]
kind = "numeric"
name = "age"
lower = 20
upper = 90

[[columns]]
kind = "categorical"
name = "sex"
levels = ["0", "1"]

[[columns]]
kind = "categorical"
name = "cp"
levels = ["1", "2", "3", "4"]
"""


def write(path: Path, content: str | bytes) -> None:
    """Write a new file that everyone inside the closed folder may read."""
    with path.open("xb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    path.chmod(FILE_MODE)


def make_folder(path: Path) -> Path:
    """Make a folder inside the closed one, open whatever the user's umask."""
    path.mkdir(parents=True)
    path.chmod(INNER_FOLDER_MODE)
    return path


def write_key(path: Path) -> str:
    """Write a new private key and return its public half."""
    key = PrivateKey.generate()
    write(path, key.to_pem())
    return key.public_hex


def make_federation(folder: Path, also: Sequence[str] = ()) -> str:
    """Write everything into a new folder and return the tester's public key.

    ``also`` are further names and addresses by which tester and curator are called.

    Raises FileExistsError where the folder exists: keys are never overwritten.
    """
    folder.mkdir(mode=FOLDER_MODE, parents=True)
    hidden = make_folder(folder / "secrets")
    tester_key = write_key(hidden / "tester_key")
    write(make_folder(folder / "tester" / "settings") / "operator.toml", OPERATOR)
    password = secrets.token_urlsafe(32)
    write(hidden / "postgres_password", password)
    write(
        hidden / "tester_database_url",
        f"postgresql+psycopg://tacit:{password}@postgres:5432/tacit",
    )
    data = resources.files("tacit.demo.data")
    for owner in OWNERS:
        secret = owner.replace("-", "_") + "_key"
        write_key(hidden / secret)
        settings = make_folder(folder / owner / "settings")
        write(settings / "agent.toml", AGENT.format(owner=owner, secret=secret, tester_key=tester_key))
        columns = ", ".join(f'"{column}"' for column in COLUMNS)
        write(settings / "policy.toml", POLICY.format(columns=columns))
        write(make_folder(folder / owner / "data") / "heart.csv", data.joinpath(f"{owner}.csv").read_bytes())
    write_key(hidden / "analyst_key")
    asking = make_folder(folder / "analyst" / "settings")
    write(asking / "party.toml", PARTY.format(tester_key=tester_key))
    asked = "".join(f'\n[[owners]]\nname = "{owner}"\ndata_set = "heart"\n' for owner in OWNERS)
    write(asking / "study.toml", STUDY + asked)
    make_curator(folder, hidden, tester_key)
    for name, content in (*service_secrets(also), *dask_secrets()):
        write(hidden / name, content)
    return tester_key


def make_curator(folder: Path, hidden: Path, tester_key: str) -> None:
    """Write what the profile ``curator`` needs: a key, a key for stored rows, and settings."""
    write_key(hidden / "curator_key")
    write(hidden / "curator_storage_keys", secrets.token_hex(32) + "\n")
    settings = make_folder(folder / "curator" / "settings")
    write(settings / "curator.toml", CURATOR.format(tester_key=tester_key))


def main() -> None:
    """Read the command line and write the folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent / "federation")
    parser.add_argument(
        "--also", action="append", default=[], help="a further name or address of the tester and the curator"
    )
    arguments = parser.parse_args()
    folder = arguments.folder
    try:
        tester_key = make_federation(folder, arguments.also)
    except FileExistsError as error:
        parser.error(f"{error.filename} exists already, and keys are never overwritten: name another folder")
    print(f"Wrote {folder}. The tester's public key: {tester_key}")  # noqa: T201 (a command)


if __name__ == "__main__":
    main()
