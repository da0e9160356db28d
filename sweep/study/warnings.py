"""What to know before the money is spent: which differences a study of this size can show at all. Pure, light."""

from __future__ import annotations

from analysis.statistics.closed_forms import e_threshold, seeds_for_e_value, seeds_for_sign_test
from sweep.study import Study
from sweep.study.search_block import search_warnings
from trainables.spec import BUILTIN_TRAINABLE


def study_warnings(study: Study) -> list[str]:
    """What the study file itself lets one foresee, one line each."""
    out = []
    comparisons = len(study.variants) - 1
    if comparisons == 0:
        out.append(f"only one variant ({study.baseline}): nothing is compared")
    elif study.analysis.stopping == "sequential":
        out += _sequential(study, comparisons)
    else:
        out += _fixed(study, comparisons)
    if not study.analysis.primary and comparisons:
        if study.primary:
            out.append(f"no primary endpoint is named: {study.primary[0]} is primary (the largest size's)")
        else:
            out.append("no primary endpoint is named: name one under analysis.primary, such as test/spearman_256")
    own_data = [spec.data for spec in study.specs.values() if spec.data is not None and spec.data.name is None]
    named = any(name.startswith("validation/") for name in study.primary)
    if named and any(data.validation is None for data in own_data):
        out.append("a primary endpoint is on the validation split, but data.validation is not given")
    if any(spec.trainable == BUILTIN_TRAINABLE for spec in study.specs.values()) and study.resources.gpus == 0:
        big = [spec.model.name for spec in study.specs.values() if spec.model is not None and "/" in spec.model.name]
        if big:
            out.append(f"resources.gpus is 0: {big[0]} will be trained on the processor")
    return out + search_warnings(study.search, study.searched_by, study.seeds)


def _fixed(study: Study, comparisons: int) -> list[str]:
    alpha, n, endpoints = study.analysis.alpha, len(study.seeds), max(1, len(study.primary))
    one, needed = seeds_for_sign_test(alpha), seeds_for_sign_test(alpha, comparisons)
    if n >= needed:
        return []
    if n < one:
        text = f"{_seeds(n)} cannot reach alpha = {_short(alpha)} in a two-sided exact test; {one} can"
        if comparisons > 1:
            text += f"; {needed} for Holm over {comparisons} comparisons"
    else:
        text = (
            f"{_seeds(n)} cannot reach alpha = {_short(alpha)} in a two-sided exact test with Holm over "
            f"{comparisons} comparisons; {needed} can"
        )
    if endpoints > 1:
        text += f"; {seeds_for_sign_test(alpha, endpoints * comparisons)} for Holm over {endpoints} endpoints"
        text += f" x {comparisons} comparisons" if comparisons > 1 else ""
    return [text]


def _sequential(study: Study, comparisons: int) -> list[str]:
    endpoints = max(1, len(study.primary))
    tests = comparisons * endpoints
    needed = seeds_for_e_value(e_threshold(tests, study.analysis.alpha))
    limit = study.analysis.max_seeds
    if limit is None or limit >= needed:
        return []
    return [
        f"max_seeds: {limit} cannot decide at alpha = {_short(study.analysis.alpha)} by the e-value rule over {tests} "
        f"{'test' if tests == 1 else 'tests'}, even if all seeds agree; {needed} can"
    ]


def _seeds(n: int) -> str:
    return "1 seed" if n == 1 else f"{n} seeds"


def _short(alpha: float) -> str:
    """.05, as papers write it."""
    return f"{alpha:g}".removeprefix("0")
