"""Users' own modules: where they lie, and how an object in one is loaded.

A user's module is looked for beside the study file after everything that is installed: the folder is appended to
the import path, so that a user's `analysis.py` cannot shadow a package of that name.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from trainables.errors import InputError


def is_import_path(name: str) -> bool:
    """True for `module:attribute`, the form in which users name their own code."""
    module, _, attribute = name.partition(":")
    return (
        bool(module and attribute)
        and all(part.isidentifier() for part in module.split("."))
        and all(part.isidentifier() for part in attribute.split("."))
    )


def add_to_import_path(root: Path | None) -> None:
    """Append the study file's folder to the import path, once."""
    if root is not None and str(root) not in sys.path:
        sys.path.append(str(root))
        importlib.invalidate_caches()


def module_file(module: str, root: Path | None = None) -> Path | None:
    """The source file of a module, found without running the module itself; None where there is none.

    Parent packages of a dotted name are imported: Python offers no other way to find their parts.
    """
    add_to_import_path(root)
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if found is None or found.origin in (None, "built-in", "frozen"):
        return None
    return Path(str(found.origin))


def module_digest(module: str, root: Path | None = None) -> str | None:
    """sha256 of a module's source, or None where the source cannot be found."""
    file = module_file(module, root)
    return hashlib.sha256(file.read_bytes()).hexdigest() if file is not None and file.is_file() else None


def load_object(path: str, *, field: str, root: Path | None = None) -> Any:
    """The object that `module:attribute` names.

    Args:
        path: Such as `my_losses:Margin`.
        field: The field of the study file that holds it, for the error.
        root: Folder of the study file.

    Raises:
        InputError: the module or the attribute does not exist, or the module fails while it is imported.
    """
    where = str(root) if root is not None else "import path"
    if not is_import_path(path):
        raise InputError(where=where, field=field, value=path, allowed="expected module:name")
    add_to_import_path(root)
    module_name, _, attribute = path.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(
            where=where, field=field, value=path, allowed=f"the module must import, but importing it says {why}"
        ) from error
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise InputError(
                where=where, field=field, value=path, allowed=f"the module has no {part!r}; name one that it has"
            ) from None
    return found
