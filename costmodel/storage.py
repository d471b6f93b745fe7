"""The file form of saved models: one JSON object that says which class wrote it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from ansor.errors import LogFormatError

VERSION: Final = 1


def write_model(file_name: str | Path, kind: str, content: dict[str, Any]) -> None:
    """Write a model's content under the name of its class."""
    data = {"format": kind, "version": VERSION, **content}
    Path(file_name).write_text(json.dumps(data) + "\n", encoding="utf-8")


def read_model(file_name: str | Path, kind: str) -> dict[str, Any]:
    """
    Read what `write_model` wrote.

    Raises
    ------
    LogFormatError
        If the file is not a model of this kind and version.
    """
    name = kind.removeprefix("ansor.")
    try:
        data = json.loads(Path(file_name).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise LogFormatError(f"{file_name}: not a saved {name}: {error}") from error
    if not isinstance(data, dict) or data.get("format") != kind:
        raise LogFormatError(f"{file_name}: not a saved {name}; write one with {name}.save")
    if data.get("version") != VERSION:
        raise LogFormatError(
            f"{file_name}: a {name} of version {data.get('version')}, and this is version {VERSION}; "
            f"train it again from its logs ({name}.update_from_file)"
        )
    return data
