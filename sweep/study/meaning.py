"""What a study file means now, for `analysis report`: the spec and the digests of every variant in every setting.

`analysis` does not import this package; it finds `meaning_of` by the entry point `pairsweep.study_file`.
"""

from __future__ import annotations

from pathlib import Path

from analysis.revisions import Content, Meant
from sweep.errors import SweepError
from sweep.study.cells import content, named_digests
from sweep.study.study import Study, load_study


def meaning_of(path: Path) -> Meant:
    """What a study file means.

    Args:
        path: A study file; one that is not valid gives a meaning that says why.
    """
    try:
        return Meant(file=path.name, contents=contents_of(load_study(path)))
    except SweepError as error:
        return Meant(file=path.name, contents={}, problem=str(error))


def contents_of(study: Study) -> dict[tuple[str, str], Content]:
    """(variant, setting) -> what is trained there. What cannot be read on this machine has no digest."""
    from trainables.digests import resolve_digests

    return {place: content(spec, named_digests(resolve_digests(spec))) for place, spec in study.specs.items()}
