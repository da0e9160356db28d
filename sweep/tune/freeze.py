"""From a finished search to a study file with the chosen settings, ready for the comparison."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from sweep.study.search_block import Point, SearchedBy

_PLAIN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_HEADER = """\
# Written by `sweep tune {source}`: for each variant the settings that its search chose.
# Each value under searched_by.best is the best of many, so it flatters its variant; what counts is the comparison
# below, on seeds that the search has not used.
"""


def frozen_name(study: str) -> str:
    """Name of the comparison that follows a search, and of its MLflow experiment."""
    return f"{study}-tuned"


def frozen_path(study_file: Path) -> Path:
    """Where it goes unless told otherwise: `x.yaml` -> `x.tuned.yaml`."""
    return study_file.with_name(f"{study_file.stem}.tuned.yaml")


def frozen_study(source: str, data: Mapping[str, Any], record: SearchedBy) -> str:
    """Text of the frozen study file.

    Args:
        source: Name of the study file that declared the search.
        data: Its contents, as read.
        record: What the search did and chose.
    """
    out = {key: value for key, value in data.items() if key not in ("search", "searched_by")}
    out["name"] = frozen_name(str(data["name"]))
    out["variants"] = {
        label: _with_training(overrides or {}, dict(record.chosen[label]))
        for label, overrides in data["variants"].items()
    }
    out["searched_by"] = record.model_dump(mode="json")
    return _HEADER.format(source=source) + yaml.dump(
        out, Dumper=_Dumper, sort_keys=False, default_flow_style=None, allow_unicode=True, width=110
    )


def _with_training(overrides: Mapping[str, Any], chosen: Point) -> dict[str, Any]:
    return {**overrides, "training": {**(overrides.get("training") or {}), **chosen}}


class _Dumper(yaml.SafeDumper):
    """Quotes every text that is not plainly a word: study files read `1e5` as a number where YAML 1.1 does not."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _PLAIN_TEXT.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
