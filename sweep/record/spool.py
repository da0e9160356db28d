"""Results that could not be recorded, kept on disk until the next command records them.

One file a result: a ZIP of `header.json` and the artifacts, written beside its place and then renamed, so that a
file is there whole or not at all.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from analysis.files import write_atomically
from sweep.console import one_line
from sweep.errors import SweepError
from sweep.files import home_hint
from sweep.record.recording import Recording

FORMAT: Final = 1
SUFFIX: Final = ".result.zip"


@dataclass(frozen=True, kw_only=True)
class Spooled:
    """One result that waits."""

    study: str
    cell: str
    """Cell key."""
    run_name: str
    tags: Mapping[str, str]
    """Tags of the run's creation."""
    run_id: str | None
    """The run that was begun for it, where one could be created."""
    recording: Recording

    def pack(self) -> bytes:
        """As the bytes of a spool file."""
        header = {
            "format": FORMAT,
            "study": self.study,
            "cell": self.cell,
            "run_name": self.run_name,
            "tags": dict(self.tags),
            "run_id": self.run_id,
            "recording": self.recording.header(),
        }
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr("header.json", json.dumps(header))
            for path, content in self.recording.artifacts.items():
                packed.writestr(f"artifacts/{path}", content)
        return buffer.getvalue()

    @classmethod
    def unpack(cls, content: bytes) -> Spooled:
        """The inverse of `pack`.

        Raises:
            ValueError: not a spool file of this version, or one that would write outside its run.
        """
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as packed:
                header = json.loads(packed.read("header.json"))
                artifacts = {
                    name.removeprefix("artifacts/"): packed.read(name)
                    for name in packed.namelist()
                    if name.startswith("artifacts/")
                }
            if header.pop("format") != FORMAT:
                raise ValueError(f"not of format {FORMAT}")
            recording = Recording.from_parts(header.pop("recording"), artifacts)
            found = cls(recording=recording, **header)
            recording.check_names()
            texts = [found.study, found.cell, found.run_name, *found.tags, *found.tags.values()]
            if not all(isinstance(text, str) for text in texts):
                raise ValueError("study, cell, run_name and tags must be text")
        except Exception as error:  # whatever damaged or foreign bytes make the readers raise
            raise ValueError(f"cannot be read: {one_line(error)}") from error
        return found


class Spool:
    """The folder of one study's waiting results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, cell: str, content: bytes) -> Path:
        """Keep a packed result; a newer one of the same cell replaces it.

        Raises:
            SweepError: the folder cannot be written.
        """
        path = self.folder / f"{cell}{SUFFIX}"
        try:
            # Results and the tags of a user's study: for nobody else on the machine.
            self.folder.mkdir(parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            write_atomically(path, content, mode=0o600)
        except OSError as error:
            raise SweepError(f"{path}: cannot be written ({error.strerror}){home_hint(str(path))}") from error
        return path

    def waiting(self) -> Iterator[tuple[Path, Spooled | ValueError]]:
        """Every waiting result, or why a file could not be read."""
        if not self.folder.is_dir():
            return
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            try:
                yield path, Spooled.unpack(path.read_bytes())
            except OSError as error:
                yield path, ValueError(f"cannot be read: {error.strerror}")
            except ValueError as error:
                yield path, error

    def remove(self, path: Path) -> None:
        """A result that is recorded, or can never be."""
        path.unlink(missing_ok=True)

    def set_aside(self, path: Path) -> Path:
        """Keep a file that cannot be used for people to look at, out of the way; where it is, if it cannot be moved."""
        aside = path.with_suffix(".unreadable")
        try:
            path.replace(aside)
        except OSError:
            return path
        return aside
