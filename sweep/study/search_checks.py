"""What a `search:` block must agree on with the rest of its study, checked when the study file is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from analysis.schema import DEFAULT_SETTING, Endpoint, parse_endpoint
from sweep.study.overrides import Layer, leaves
from sweep.study.search_block import SearchBlock, SearchedBy
from sweep.study.yaml_reader import Document


def check_search(
    document: Document,
    search: SearchBlock,
    *,
    seeds: Iterable[int],
    variants: Mapping[str, Layer],
    settings: Iterable[str],
) -> None:
    """Refuse a search that could not lead to a fair comparison.

    Raises:
        StudyError: a tuning seed that the comparison uses, a searched field that a variant sets, a study with settings.
    """
    if set(settings) != {DEFAULT_SETTING}:
        allowed = "a search goes with a study without settings; tune first, then add settings to the frozen study"
        raise document.error(("settings",), list(settings), allowed)
    shared = sorted(set(search.seeds) & set(seeds))
    if shared:
        allowed = f"the study itself uses seed {shared[0]}; the comparison needs seeds that the search has not seen"
        raise document.error(("search", "seeds"), list(search.seeds), allowed)
    for variant, layer in variants.items():
        own = {path[1] for path in leaves(layer) if path[0] == "training"}
        for name in search.space:
            if name in own:
                allowed = f"variant {variant!r} sets it; a field is set by a variant or searched, not both"
                raise document.error(("search", "space", name), name, allowed)


def search_endpoint(search: SearchBlock, common_dims: tuple[int, ...]) -> str:
    """What the search maximises: as declared, else Spearman on the validation split at the largest common size.

    Raises:
        ValueError: none is declared, and the variants have no size in common.
    """
    if search.endpoint is not None:
        return search.endpoint
    if not common_dims:
        raise ValueError("name one, such as validation/spearman_64; the variants have no embedding size in common")
    return str(Endpoint("validation/spearman", max(common_dims)))


def endpoint_warnings(endpoint: str) -> list[str]:
    """What the choice of the searched endpoint does to the report."""
    if parse_endpoint(endpoint).split != "test":
        return []
    return [f"the search maximises {endpoint}, a test score: the report of the comparison will be exploratory"]


def search_warnings(search: SearchBlock | None, searched_by: SearchedBy | None, seeds: Iterable[int]) -> list[str]:
    """What a search, to come or done, does to the report of a study; said before anything runs."""
    out = []
    if search is not None:
        out.append("search: is for `sweep tune`; `sweep run` trains the study as it stands, without tuned settings")
        out += endpoint_warnings(search.endpoint) if search.endpoint is not None else []
    if searched_by is not None:
        out += endpoint_warnings(searched_by.endpoint)
        shared = sorted(set(searched_by.seeds) & set(seeds))
        if shared:
            out.append(
                f"seed {', '.join(map(str, shared))} was used for tuning: the report will be exploratory; "
                "use seeds that the search has not seen"
            )
        if len(set(searched_by.budget.values())) > 1:
            out.append("the variants were tuned with different budgets: the report will be exploratory")
    return out
