"""Tiny open_clip folders with random weights, in the formats that real models have."""

from pathlib import Path

import torch

from mmspec.embedded.clip import ClipShape, build, export

WORDS = ["a", "an", "the", "of", "in", "at", "on", "one", "two", "three", "red", "blue", "green", "night", "noon", "dawn", "dusk", "rain", "snow", "fog", "storm", "clear", "sky", "under", "with", "dragon", "castle", "robot", "eye", "mechanical", "glasses", "empty", "scene", "neon", "city", "forest", "sea", "left", "right", "middle"]  # fmt: skip
SHAPE = ClipShape(32, 8, (1, 1, 1, 1), 16, context_length=12)


def write_bert_folder(folder: Path, *, seed: int = 0) -> Path:
    """A sentence encoder of one layer with its tokenizer, as all-MiniLM-L6-v2 is saved."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder.mkdir(parents=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=32).save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = BertModel(BertConfig(vocab_size=len(vocabulary), max_position_embeddings=32, **sizes))
    model.save_pretrained(folder)
    return folder


def write_shipped_folder(folder: Path, *, bert: Path, text_encoder: str, seed: int = 0) -> Path:
    """What ships for the embedded world: the trained part alone, its text encoder named by reference."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build(SHAPE, text_folder=bert)
    # A fresh image tower has all-zero last norms and gives one answer for every picture.
    for name, parameter in model.visual.named_parameters():
        if name.endswith("bn3.weight"):
            parameter.data.fill_(1.0)
    export(model, SHAPE, folder, text_encoder=text_encoder)
    return folder
