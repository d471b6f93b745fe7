"""A guard for the generic names of the packages beside `ansor`.

`search`, `measure`, `sketches` and `costmodel` are words that other people use for their own files. A user's
`search.py` beside their script comes first on the import path, and the failure would show up as a missing
attribute deep inside ansor. Before the facade reaches into a sibling for the first time it asks the import
system where the four would come from, without running them, and refuses a foreign one by its path.
"""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Final

SIBLINGS: Final = ("sketches", "measure", "costmodel", "search")
"""Top-level packages that belong to ansor, lowest layer first."""


def check_siblings(home: Path | None = None) -> None:
    """
    Make sure that every sibling package comes from the directory that holds ansor.

    Parameters
    ----------
    home
        Directory that must hold the siblings; default is the parent of the `ansor` package.

    Raises
    ------
    ImportError
        If Python finds another module under one of the names, or none; the message says which file to rename.
    """
    expected = (home or Path(__file__).parent.parent).resolve()
    for name in SIBLINGS:
        found = _location(name)
        if found is None:
            raise ImportError(
                f"ansor needs its own package {name!r} in {expected}, but Python finds none; "
                "install ansor completely, or run from the root of its source tree",
                name=name,
            )
        package = found.parent if found.name == "__init__.py" else found
        if package != expected / name:
            raise ImportError(
                f"ansor needs its own package {name!r} from {expected}, but Python found {str(found)!r} "
                "first; rename that file or directory, or run from another directory",
                name=name,
                path=str(found),
            )


def _location(name: str) -> Path | None:
    """File (or directory, for a namespace package) that `import name` would use; nothing is executed."""
    loaded = sys.modules.get(name)
    spec: ModuleSpec | None = loaded.__spec__ if loaded is not None else find_spec(name)
    if spec is None:
        origin = getattr(loaded, "__file__", None)
        return Path(origin).resolve() if origin else None
    if spec.origin is not None and spec.has_location:
        return Path(spec.origin).resolve()
    places = list(spec.submodule_search_locations or ())
    return Path(places[0]).resolve() if places else None
