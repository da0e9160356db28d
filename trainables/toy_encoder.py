"""The built-in toy encoders: a two-layer BERT over the toy vocabulary, random or trained a little.

`toy` is trained once by CoSENT on pairs that no study uses, seeded and on one thread, and kept in the user's cache.
A plain loop does it: the result then depends on nothing but this file, the toy pairs and torch itself.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trainables.digests import toy_model_digest
from trainables.downloads import cache_folder
from trainables.toy_pairs import HIGHEST, toy_pairs, vocabulary

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

HIDDEN: Final = 64
LAYERS: Final = 2
HEADS: Final = 4
MAX_TOKENS: Final = 32
SEED: Final = 20240
PRETRAINING_EPOCHS: Final = 2
PRETRAINING_BATCH: Final = 32
PRETRAINING_RATE: Final = 1e-3
_SPECIAL: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = {word: index for index, word in enumerate((*_SPECIAL, *vocabulary()))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", words["[CLS]"]), ("[SEP]", words["[SEP]"])],
    )
    file = folder / "tokenizer.json"
    tokenizer.save(str(file))
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_file=str(file),
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=MAX_TOKENS,
    ).save_pretrained(folder)


def build_toy_random(folder: Path) -> None:
    """Write the untrained toy encoder, as a sentence-transformers model folder."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel

    inner = folder / "bert"
    inner.mkdir(parents=True)
    _write_tokenizer(inner)
    config = BertConfig(
        vocab_size=len(_SPECIAL) + len(vocabulary()),
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=2 * HIDDEN,
        max_position_embeddings=MAX_TOKENS,
        type_vocab_size=1,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        BertModel(config, add_pooling_layer=False).save_pretrained(inner)
    transformer = Transformer(str(inner), max_seq_length=MAX_TOKENS)
    pooling = Pooling(HIDDEN, pooling_mode="mean")
    SentenceTransformer(modules=[transformer, pooling], device="cpu").save(
        str(folder / "model"), create_model_card=False
    )


def _pretrain(model: SentenceTransformer) -> None:
    import torch
    from sentence_transformers.sentence_transformer.losses import CoSENTLoss

    pairs = toy_pairs("pretraining")
    loss = CoSENTLoss(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PRETRAINING_RATE, foreach=False)
    order = random.Random(SEED)
    model.train()
    for _ in range(PRETRAINING_EPOCHS):
        rows = sorted(range(len(pairs)), key=lambda _: order.random())
        for start in range(0, len(rows), PRETRAINING_BATCH):
            batch = [pairs[row] for row in rows[start : start + PRETRAINING_BATCH]]
            features: list[Any] = [
                model.preprocess([pair.sentence1 for pair in batch]),
                model.preprocess([pair.sentence2 for pair in batch]),
            ]
            optimizer.zero_grad()
            loss(features, torch.tensor([pair.label / HIGHEST for pair in batch])).backward()
            optimizer.step()
    model.eval()


def _build(name: str, folder: Path) -> None:
    import torch
    from sentence_transformers import SentenceTransformer

    build_toy_random(folder)
    if name == "toy":
        threads = torch.get_num_threads()
        try:
            torch.set_num_threads(1)  # sums in another order are other weights
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(SEED)
                model = SentenceTransformer(str(folder / "model"), device="cpu")
                _pretrain(model)
                model.save(str(folder / "model"), create_model_card=False)
        finally:
            torch.set_num_threads(threads)


def _instruction_set() -> str:
    import platform

    import torch

    return f"{platform.machine()}-{torch.backends.cpu.get_cpu_capability()}"


def toy_encoder_folder(name: str) -> Path:
    """Folder of a built-in toy encoder (`toy` or `toy-random`); builds it where it is not cached.

    Cached per source of this package's toy files, torch version and instruction set, since each gives other bits.
    """
    import torch

    identity = f"{toy_model_digest(name)}-torch{torch.__version__}-{_instruction_set()}".replace("/", "-").replace(
        " ", "-"
    )
    folder = cache_folder() / "models" / identity
    if (folder / "complete.json").is_file():
        return folder / "model"
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".building-"))
    try:
        _build(name, temporary)
        shutil.rmtree(temporary / "bert", ignore_errors=True)
        (temporary / "complete.json").write_text(json.dumps({"identity": identity}))
        try:
            os.replace(temporary, folder)  # noqa: PTH105  Path.replace says the same; this names what is atomic
        except OSError:
            if not (folder / "complete.json").is_file():
                raise
            # Another process built the same encoder first: the same bits.
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder / "model"
