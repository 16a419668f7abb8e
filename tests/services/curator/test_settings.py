"""curator.toml: what is read, what is refused."""

from pathlib import Path

import pytest

from tacit_services.curator.__main__ import CuratorSettings
from tacit_services.shared.settings import SettingsError

WRITTEN = f"""
name = "clearinghouse"
url = "https://curator.example/"
key_file = "curator.pem"
storage_folder = "rows"
storage_keys_file = "storage.key"
tester_url = "https://tester.example/"
tester_key = "{"3" * 64}"
"""

DATA_SET = '[[data_sets]]\nowner = "north"\nname = "heart"\nsource = "heart.csv"\n'


def load(folder: Path, text: str) -> CuratorSettings:
    path = folder / "curator.toml"
    path.write_text(text)
    return CuratorSettings.load(path)


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    settings = load(tmp_path, WRITTEN + DATA_SET)
    assert settings.key_file == tmp_path / "curator.pem"
    assert settings.storage_folder == tmp_path / "rows"
    assert settings.storage_keys_file == tmp_path / "storage.key"
    assert settings.database_url == f"sqlite:///{tmp_path / 'curator.sqlite3'}"
    (tmp_path / "heart.csv").write_text("x\n1\n")
    assert settings.data_sets[0].open().column_names() == ("x",)
    assert (settings.token_audience, settings.audience_of_tester) == (
        "https://curator.example",
        "https://tester.example",
    )
    named = load(tmp_path, WRITTEN + 'audience = "a"\ntester_audience = "b"\n')
    assert (named.token_audience, named.audience_of_tester) == ("a", "b")


@pytest.mark.parametrize(
    "added",
    [
        "unknown = 1",
        "uploads_max = 0",
        "poll_wait_s = 61",
        DATA_SET + DATA_SET,
        DATA_SET + "epsilon = 1.0",
        'tls_certificate_file = "chain.pem"',
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, added: str) -> None:
    with pytest.raises(SettingsError):
        load(tmp_path, WRITTEN + added)
