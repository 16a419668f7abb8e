"""A draft as a TOML file, as :meth:`~tacit.draft.StudyDraft.from_toml` reads it."""

from pathlib import Path

from tacit.configuration import toml_text
from tacit.draft import StudyDraft
from tacit.errors import InputError

SCHEMA_LINE = (
    "#:schema study.schema.json\n# tacit study schema > study.schema.json lets editors check this file.\n\n"
)
"""First lines of a saved draft."""


def draft_text(draft: StudyDraft) -> str:
    """Write a draft as TOML, without what it does not say."""
    fields = draft.model_dump(mode="json", exclude_none=True, exclude_defaults=False)
    return SCHEMA_LINE + toml_text({name: value for name, value in fields.items() if value != {}})


def save_draft(draft: StudyDraft, file: Path) -> None:
    """Write a draft to a new file.

    Raises:
        InputError: the file exists already, or cannot be written.
    """
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(draft_text(draft))
    except FileExistsError as error:
        raise InputError(f"{file} exists already: name another file") from error
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror}") from error
