"""Writes the sentence pairs of own_data.yaml: rated by the share of meaning that the two sentences have in common.

python make_pairs.py FOLDER

The words are those that the toy encoder knows, so that the example runs anywhere and in seconds.
"""

import csv
import sys
from pathlib import Path

import numpy as np

WHO = ("doctor", "nurse", "farmer", "gardener", "singer", "pilot")
DOES = ("buys", "sells", "cleans", "paints", "breaks", "hides")
WHAT = ("car", "truck", "apple", "chair", "letter", "coat")
PARTS = (WHO, DOES, WHAT)
ROWS = {"train": 96, "validation": 32, "test": 64}


def pair(rng: np.random.Generator) -> tuple[str, str, float]:
    """Two sentences, and a rating from 1 (nothing in common) to 5 (the same meaning), give or take a little."""
    first = [str(rng.choice(words)) for words in PARTS]
    second = list(first)
    for part, words in enumerate(PARTS):
        if rng.random() < 0.4:
            second[part] = str(rng.choice(words))
    common = sum(one == other for one, other in zip(first, second, strict=True)) / len(PARTS)
    rating = float(np.clip(1 + 4 * common + rng.normal(0, 0.4), 1, 5))
    return say(*first), say(*second), round(rating, 1)


def say(who: str, does: str, what: str) -> str:
    return f"the {who} {does} the {what}"


def main(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for split, rows in ROWS.items():
        with (folder / f"{split}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("question", "candidate", "rating"))
            writer.writerows(pair(rng) for _ in range(rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
