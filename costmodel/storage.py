"""The file forms of saved models; both say which class wrote them.

Small things are one JSON object. A model that learns is saved as a zip file of arrays (numpy's), with that
object as its header. Nothing is pickled.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ansor.errors import LogFormatError
from ansor.files import whole_file

VERSION: Final = 3
_HEADER: Final = "header"
Arrays = dict[str, NDArray[Any]]


def write_model(file_name: str | Path, kind: str, content: Mapping[str, Any]) -> None:
    """
    Write a model's content under the name of its class.

    Raises
    ------
    OSError
        If the file cannot be written; it is as it was then.
    """
    with _naming("save", file_name, kind), whole_file(file_name) as file:
        file.write((_header(kind, content) + "\n").encode())


def read_model(file_name: str | Path, kind: str) -> dict[str, Any]:
    """
    Read what `write_model` wrote.

    Raises
    ------
    LogFormatError
        If the file is not a model of this kind and version.
    OSError
        If the file cannot be read; a FileNotFoundError if there is none.
    """
    with _naming("load", file_name, kind), refusing(file_name, kind):
        return _checked(file_name, kind, Path(file_name).read_text(encoding="utf-8"))


def write_arrays(file_name: str | Path, kind: str, content: Mapping[str, Any], arrays: Arrays) -> None:
    """Write a model's content and its arrays under the name of its class; errors as of `write_model`."""
    with _naming("save", file_name, kind), whole_file(file_name) as file:
        np.savez_compressed(file, allow_pickle=False, **{_HEADER: np.array(_header(kind, content)), **arrays})


def read_arrays(file_name: str | Path, kind: str) -> tuple[dict[str, Any], Arrays]:
    """
    Read what `write_arrays` wrote.

    Raises
    ------
    LogFormatError
        If the file is not a model of this kind and version.
    OSError
        If the file cannot be read; a FileNotFoundError if there is none.
    """
    with _naming("load", file_name, kind), refusing(file_name, kind):
        with open(file_name, "rb") as file, zipfile.ZipFile(file):
            file.seek(0)
            arrays = dict(np.load(file, allow_pickle=False))
        return _checked(file_name, kind, str(arrays.pop(_HEADER, ""))), arrays


_DAMAGED: Final = (
    *(ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError),
    *(EOFError, TokenError, zlib.error, zipfile.BadZipFile),
)
"""What reading odd content raises; the error of a library that reads its own is a ValueError."""


@contextmanager
def refusing(file_name: str | Path, kind: str) -> Iterator[None]:
    """Say of content that cannot be understood which file it is in.

    Raises
    ------
    LogFormatError
        Instead of whatever error reading it raised.
    """
    try:
        yield
    except LogFormatError:
        raise
    except _DAMAGED as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else error
        raise LogFormatError(f"{file_name}: not a saved {kind}: {what}") from error


_HINTS: Final = {
    "load": "give the path of a file that {kind}.save wrote",
    "save": "give the path of a file in a folder that exists and may be written to",
}


@contextmanager
def _naming(method: str, file_name: str | Path, kind: str) -> Iterator[None]:
    """Say of an error of the file system which file it was, and what to do; its class stays."""
    try:
        yield
    except OSError as error:
        why, hint = error.strerror or str(error), _HINTS[method].format(kind=kind)
        raise type(error)(f"{kind}.{method}({str(file_name)!r}): {why}; {hint}") from error


def _header(kind: str, content: Mapping[str, Any]) -> str:
    return json.dumps({"format": f"ansor.{kind}", "version": VERSION, **content})


def _checked(file_name: str | Path, kind: str, text: str) -> dict[str, Any]:
    """Parse a header and see whose it is."""
    data = json.loads(text)
    if not isinstance(data, dict) or data.get("format") != f"ansor.{kind}":
        raise LogFormatError(f"{file_name}: not a saved {kind}; write one with {kind}.save")
    if data.get("version") != VERSION:
        raise LogFormatError(
            f"{file_name}: a {kind} in version {data.get('version')} of the format, and this reads version "
            f"{VERSION}; train it again from its logs ({kind}.update_from_file)"
        )
    return data
