"""Revisions of a variant: recorded trainings of one code, spec and data. Which there are, and how they differ. Pure.

Every run of a cell says what it trained: its flat spec and the digests of its data, model and modules. Runs of one
variant and setting in which these agree, whatever the seed, are one revision of the variant. They are counted from 1.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from analysis import schema
from analysis.showing import counted

SEED_FIELD: Final = "seed"
Place = tuple[str, str]
"""(variant, setting)."""


@dataclass(frozen=True, kw_only=True)
class Content:
    """What a training depends on besides its seed."""

    fields: Mapping[str, Any]
    """Flat spec, without the seed."""
    digests: Mapping[str, str]
    """`data`, `model`, `module:<name>` -> digest; what cannot be read where a study file is resolved is left out."""

    @property
    def key(self) -> str:
        """Equal for equal contents."""
        text = json.dumps([dict(self.fields), dict(self.digests)], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def fits(self, recorded: Content) -> bool:
        """Whether this may be what was recorded: nothing that is known of both differs."""
        return not self.differences(recorded)

    def differences(self, recorded: Content) -> list[str]:
        """In what a recorded content differs from this one: `epochs (3, recorded 1)`, `module my_losses`."""
        if not recorded.fields:
            return []
        found = [
            f"{name} ({_shown(self.fields.get(name))}, recorded {_shown(recorded.fields.get(name))})"
            for name in sorted(self.fields.keys() | recorded.fields.keys())
            if self.fields.get(name) != recorded.fields.get(name)
        ]
        both = sorted(self.digests.keys() & recorded.digests.keys())
        return found + [name.replace(":", " ") for name in both if self.digests[name] != recorded.digests[name]]


def content_of(tags: Mapping[str, str]) -> Content:
    """What the tags of a cell's run say; empty fields where they cannot be read."""
    try:
        fields = json.loads(tags.get(schema.TAG_FIELDS, "{}"))
    except ValueError:
        fields = {}
    fields = fields if isinstance(fields, dict) else {}
    return Content(
        fields={name: value for name, value in fields.items() if name != SEED_FIELD},
        digests={
            name.removeprefix(schema.TAG_DIGEST_PREFIX): digest
            for name, digest in tags.items()
            if name.startswith(schema.TAG_DIGEST_PREFIX)
        },
    )


@dataclass(frozen=True, kw_only=True)
class TrainedRun:
    """One recorded run of a cell, as far as revisions are concerned."""

    run_id: str
    tags: Mapping[str, str]
    start_ms: int
    finished: bool

    @property
    def variant(self) -> str:
        """As it is called now."""
        return self.tags.get(schema.TAG_VARIANT, "")

    @property
    def place(self) -> Place:
        """Variant and setting."""
        return self.variant, self.tags.get(schema.TAG_SETTING) or schema.DEFAULT_SETTING


@dataclass(frozen=True, kw_only=True)
class Revision:
    """One revision of a variant, over its settings."""

    variant: str
    number: int
    contents: Mapping[str, Content]
    """Setting -> what was trained."""
    runs: tuple[TrainedRun, ...]
    """Oldest first, unfinished ones too."""

    @property
    def name(self) -> str:
        """`mine@2`."""
        return f"{self.variant}@{self.number}"

    @property
    def finished(self) -> int:
        """Finished cells."""
        return len({run.tags.get(schema.TAG_CELL, run.run_id) for run in self.runs if run.finished})

    @property
    def when(self) -> str:
        """When its first and its last training began."""
        first, last = (_minute(run.start_ms) for run in (self.runs[0], self.runs[-1]))
        return f"{first} UTC" if first == last else f"{first} to {last[11:] if first[:10] == last[:10] else last} UTC"

    def differences(self, other: Revision) -> list[str]:
        """In what another revision of the variant differs from this one, over the settings that both have."""
        shared = [setting for setting in self.contents if setting in other.contents]
        return list(
            dict.fromkeys(
                text for setting in shared for text in self.contents[setting].differences(other.contents[setting])
            )
        )


def revisions(runs: Iterable[TrainedRun]) -> dict[str, list[Revision]]:
    """Variant -> its revisions by number.

    A run carries the number that its launch gave it. Runs from before there were numbers are counted within their
    variant and setting, in the order in which each content was first trained.
    """
    ordered = sorted(runs, key=lambda run: (run.start_ms, run.run_id))
    contents = {run.run_id: content_of(run.tags) for run in ordered}
    keys = {run_id: content.key for run_id, content in contents.items()}
    numbers: dict[tuple[str, str, str], int] = {}
    taken: dict[Place, set[int]] = {}
    for run in ordered:
        tag = run.tags.get(schema.TAG_REVISION, "")
        identity = (*run.place, keys[run.run_id])
        if identity not in numbers:
            here = taken.setdefault(run.place, set())
            number = int(tag) if tag.isdecimal() else len(here) + 1
            while number in here:  # one that was retired while its number was given again
                number += 1
            here.add(number)
            numbers[identity] = number
    members: dict[str, dict[int, list[TrainedRun]]] = {}
    for run in ordered:
        number = numbers[(*run.place, keys[run.run_id])]
        members.setdefault(run.variant, {}).setdefault(number, []).append(run)
    return {
        variant: [
            Revision(
                variant=variant,
                number=number,
                contents={run.place[1]: contents[run.run_id] for run in of_number},
                runs=tuple(of_number),
            )
            for number, of_number in sorted(by_number.items())
        ]
        for variant, by_number in members.items()
    }


def numbers_for(wanted: Mapping[Place, Content], recorded: Mapping[str, Sequence[Revision]]) -> dict[Place, int]:
    """The revision numbers of what a study means now.

    What was recorded before keeps its number. A variant of which anything changed gets the next one, for all of its
    settings that are new; a setting that is merely added belongs to the revision that its variant has.

    Args:
        wanted: What each variant is in each setting.
        recorded: From `revisions`.
    """
    found: dict[Place, int] = {}
    for variant in dict.fromkeys(variant for variant, _ in wanted):
        own = {place: content for place, content in wanted.items() if place[0] == variant}
        known = recorded.get(variant, ())
        changed = False
        for place, content in own.items():
            here = [one for one in known if place[1] in one.contents]
            fitting = [one.number for one in here if content.fits(one.contents[place[1]])]
            if fitting:
                found[place] = fitting[-1]
            changed = changed or bool(here and not fitting)
        current = [found[place] for place in own if place in found]
        fresh = max((one.number for one in known), default=0) + 1
        number = fresh if changed or not current else max(current)
        found.update({place: number for place in own if place not in found})
    return found


def current_numbers(tags: Mapping[str, str]) -> dict[str, int]:
    """Variant -> the revision that the study's last launch meant, as its study run's tags say."""
    names = sorted(name for name in tags if name.startswith(schema.HISTORY_TAG_REVISIONS))
    try:
        current = json.loads(tags[names[-1]])["current"] if names else {}
        return {str(variant): int(number) for variant, number in current.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


# -- which revision is shown ---------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Meant:
    """What a study file means now."""

    file: str
    contents: Mapping[Place, Content]
    problem: str = ""
    """Why the file cannot be read; there are no contents then."""

    @property
    def key(self) -> str:
        """Equal for equal meanings."""
        parts = sorted([*place, content.key] for place, content in self.contents.items())
        return hashlib.sha256(json.dumps([parts, self.problem]).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The runs that a report is made from, and what its reader must know about the others."""

    run_ids: frozenset[str]
    names: Mapping[str, str] = field(default_factory=dict)
    """Run id -> `mine@1`, where revisions were asked for by name."""
    edited: tuple[str, ...] = ()
    """Flat fields in which revisions that were asked for by name differ."""
    warnings: tuple[str, ...] = ()


def shown_now(
    runs: Sequence[TrainedRun], meant: Meant | None = None, *, launched: Mapping[str, int] | None = None
) -> Shown:
    """The revisions that a study file means, or, without one, those of the last launch.

    Args:
        runs: All recorded runs of a study's cells.
        meant: What its file means; None: only its name is known.
        launched: Variant -> the revision that the last launch meant; one that is not there: the one trained last.
    """
    warnings = []
    if meant is not None and meant.problem:
        warnings.append(f"{meant.file} cannot be read ({meant.problem}); shown is what was trained last.")
    wanted = {} if meant is None else meant.contents
    kept: set[str] = set()
    for variant, known in revisions(runs).items():
        file = "" if meant is None else meant.file
        current, lines = _current(known, wanted, file=file, launched=(launched or {}).get(variant))
        kept |= current
        warnings += lines
    return Shown(run_ids=frozenset(kept), warnings=tuple(warnings))


def _current(
    known: Sequence[Revision], wanted: Mapping[Place, Content], *, file: str, launched: int | None
) -> tuple[set[str], list[str]]:
    """Run ids of the revision that counts in each setting of a variant, and what to say about it."""
    variant = known[0].variant
    kept: set[str] = set()
    used: dict[int, None] = {}
    differing: dict[str, None] = {}
    for setting in dict.fromkeys(setting for one in known for setting in one.contents):
        here = [one for one in known if setting in one.contents]
        meant = wanted.get((variant, setting))
        # A cell that was renamed in the file alone is still recorded under its old name.
        candidates = [meant] if meant is not None else list(wanted.values())
        fitting = [one for one in here if any(content.fits(one.contents[setting]) for content in candidates)]
        last = max(here, key=lambda one: (one.number == launched, one.runs[-1].start_ms))
        chosen = fitting[-1] if fitting else last
        used[chosen.number] = None
        kept |= {run.run_id for run in chosen.runs if run.place[1] == setting}
        if meant is not None and not fitting:
            differing.update(dict.fromkeys(meant.differences(chosen.contents[setting])))
    lines = []
    shown = " and ".join(f"{variant}@{number}" for number in used)
    if differing:
        when = next(one for one in known if one.number in used).when
        lines.append(
            f"{variant} in {file} is not what is recorded: it differs in {_listed(list(differing))}. Shown is {shown},"
            f" trained {when}; sweep run {file} trains what the file means."
        )
    others = [one for one in known if one.number not in used and one.finished]
    if others:
        mine = next(one for one in known if one.number in used)
        told = "; ".join(
            f"{one.name} ({counted(one.finished, 'finished cell')}, {one.when}, differs in"
            f" {_listed(mine.differences(one)) or 'its settings'})"
            for one in others
        )
        lines.append(
            f"{variant} was edited: shown is {shown}, and no p-value is corrected for earlier looks at {told}. To"
            f" compare: --variants {others[-1].name},{mine.name}."
        )
    return kept, lines


def shown_by_name(runs: Sequence[TrainedRun], now: Shown, names: Sequence[str]) -> Shown:
    """The runs of variants named one by one: `mine`, as it counts now, or `mine@1`, a revision.

    Args:
        runs: All recorded runs of a study's cells.
        now: From `shown_now`.
        names: What was asked for.

    Raises:
        ValueError: a name that is not recorded.
    """
    known = revisions(runs)
    kept: dict[str, str] = {}
    asked: list[Revision] = []
    for name in names:
        variant, number = split_name(name, known)
        found = [one for one in known.get(variant, ()) if number in (None, one.number)]
        if not found:
            recorded = ", ".join(one.name for group in known.values() for one in group)
            raise ValueError(f"{name!r} is not recorded; recorded: {recorded}")
        if number is None:
            kept.update((r.run_id, variant) for one in found for r in one.runs if r.run_id in now.run_ids)
        else:
            asked += found
            kept.update((run.run_id, name) for one in found for run in one.runs)
    edited: dict[str, None] = {}
    lines = []
    for one, other in itertools.pairwise(asked):
        if one.variant == other.variant:
            differences = other.differences(one)
            edited.update((text.partition(" (")[0], None) for text in differences if " (" in text)
            lines.append(
                f"{other.name} differs from {one.name} in {_listed(differences) or 'nothing that is recorded'}."
            )
    return Shown(run_ids=frozenset(kept), names=kept, edited=tuple(edited), warnings=tuple(lines))


def split_name(name: str, variants: Iterable[str]) -> tuple[str, int | None]:
    """`mine@2` -> ("mine", 2); a name that is a variant's own is taken whole."""
    found = re.fullmatch(r"(.+)@([1-9][0-9]*)", name)
    if name in variants or found is None:
        return name, None
    return found[1], int(found[2])


def _listed(parts: Sequence[str], most: int = 4) -> str:
    shown = ", ".join(parts[:most])
    return shown if len(parts) <= most else f"{shown} and {len(parts) - most} more"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 40 else text[:37] + "..."


def _minute(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, tz=UTC):%Y-%m-%d %H:%M}"
