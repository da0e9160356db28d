"""Packed sentences: oracle is the library's padded forward pass."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("sentence_transformers")

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModel,
    BertConfig,
    ModernBertConfig,
    PretrainedConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
)

from trainables.sentence_pair.packing import can_pack, encode_packed, fill_rows, pack

WORDS = 60
SMALL = {
    "vocab_size": WORDS + 4,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}


def encoder(folder: Path, config: PretrainedConfig, pooling: str = "mean") -> SentenceTransformer:
    torch.manual_seed(0)
    vocabulary = {"<pad>": 0, "<unk>": 1, "<s>": 2, "</s>": 3, **{f"w{i}": i + 4 for i in range(WORDS)}}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=core, **special).save_pretrained(folder)
    AutoModel.from_config(config).save_pretrained(folder)
    modules = [Transformer(str(folder)), Pooling(32, pooling_mode=pooling), Normalize()]
    return SentenceTransformer(modules=modules, device="cpu")


def sentences(lengths: list[int]) -> list[list[int]]:
    draw = torch.Generator().manual_seed(1)
    return [torch.randint(4, WORDS + 4, (length,), generator=draw).tolist() for length in lengths]


def features(model: SentenceTransformer, batch: list[list[int]]) -> dict[str, torch.Tensor]:
    made = model.tokenizer.pad({"input_ids": batch}, return_tensors="pt")
    return {"input_ids": made["input_ids"], "attention_mask": made["attention_mask"]}


def padded(model: SentenceTransformer, batch: list[list[int]]) -> torch.Tensor:
    return model(features(model, batch))["sentence_embedding"]


def packs(model: SentenceTransformer, batch: list[list[int]]) -> bool:
    return can_pack(model, batch, features(model, batch), pad_id=0)


BERT = BertConfig(**SMALL, pad_token_id=0)
ROBERTA = RobertaConfig(**SMALL, pad_token_id=0, max_position_embeddings=128)
MODERNBERT = ModernBertConfig(
    **SMALL, pad_token_id=0, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3, local_attention=32
)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "lasttoken"])
@pytest.mark.parametrize("config", [BERT, ROBERTA, MODERNBERT], ids=lambda config: config.model_type)
def test_embeddings_and_gradients_against_library(config: PretrainedConfig, pooling: str, tmp_path: Path) -> None:
    model = encoder(tmp_path, config, pooling).eval()
    batch = sentences([3, 15, 1, 9, 9, 4, 12, 2, 7])
    weights = torch.linspace(-1, 1, 9 * 32).reshape(9, 32)

    expected = padded(model, batch)
    (expected * weights).sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    got = encode_packed(model, pack(batch, pad_id=0))
    (got * weights).sum().backward()

    assert packs(model, batch)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)
    for name, parameter in model.named_parameters():
        if name in gradients:
            torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-4, atol=2e-6, msg=name)


def test_a_sentence_longer_than_the_attention_window_is_found_out(tmp_path: Path) -> None:
    model = encoder(tmp_path, MODERNBERT)
    assert packs(model, sentences([16, 5, 3]))
    assert not packs(model, sentences([40, 5, 3]))


def test_eager_attention_is_not_packed(tmp_path: Path) -> None:
    model = encoder(tmp_path, BERT)
    model[0].auto_model.set_attn_implementation("eager")
    assert not packs(model, sentences([5, 3]))


def test_trying_leaves_no_trace(tmp_path: Path) -> None:
    model = encoder(tmp_path, BERT).train()
    before = torch.get_rng_state()
    assert packs(model, sentences([5, 3]))
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("lengths", [[1], [64], [40, 30, 24, 34], [63, 2, 1], list(range(1, 60))])
def test_rows_hold_every_sentence_once_and_no_more_than_their_width(lengths: list[int]) -> None:
    rows = fill_rows(lengths, 64)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    assert max(sum(lengths[i] for i in row) for row in rows) <= 64
    assert len(rows) <= 11 / 9 * -(-sum(lengths) // 64) + 1


def test_the_order_of_sentences_is_kept(tmp_path: Path) -> None:
    model = encoder(tmp_path, BERT).eval()
    batch = sentences([2, 20, 5])
    together = encode_packed(model, pack(batch, pad_id=0))
    for index, one in enumerate(batch):
        alone = padded(model, [one])
        torch.testing.assert_close(together[index : index + 1], alone, rtol=0, atol=1e-6)
