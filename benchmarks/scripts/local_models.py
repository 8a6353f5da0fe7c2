"""What scripts of Hugging Face and timm need beside them: small models, tokenizers and data, made here, not downloaded.

    python benchmarks/scripts/local_models.py causal_lm FOLDER

Models have random weights, from a seed; the T5 that LoRA adapts is trained first, on another task over the same text.
"""

from __future__ import annotations

import json
import random
import re
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

SEED = 1
NOISE = 0.1  # of the labels are drawn anew, so that the loss has a floor
WORDS = {  # what decides the label of a sentence
    "positive": ["rose", "gained", "grew", "improved", "exceeded", "doubled"],
    "negative": ["fell", "lost", "shrank", "weakened", "missed", "halved"],
    "neutral": ["stayed", "remained", "continued", "matched", "repeated", "kept"],
}
SUBJECTS = ["sales", "profit", "revenue", "orders", "margins", "exports", "earnings", "shipments"]
ENDS = ["in the first quarter", "against last year", "in all markets", "as the company said", "after the merger"]


def sources(*names: str) -> str:
    """Returns the text of modules of Python's standard library."""
    home = Path(sysconfig.get_paths()["stdlib"])
    return "".join((home / name).read_text() for name in names)


def write_tokenizer(folder: Path, texts: Iterable[str], tokens: int, length: int, *, words: bool = False) -> int:
    """Trains a tokenizer, of bytes in pairs or of whole words, and writes it. Returns how many tokens it has."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "</s>", "<unk>"]
    if words:
        tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(vocab_size=tokens, special_tokens=special))
        end = [("</s>", tokenizer.token_to_id("</s>"))]
        tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=end)
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        letters = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=tokens, special_tokens=special, initial_alphabet=letters)
        tokenizer.train_from_iterator(texts, trainer)
    marks = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=length, **marks)
    made.save_pretrained(folder)
    return len(made)


def write_causal_lm(folder: Path) -> None:
    """Writes `model/`, a configuration of GPT-2 with its tokenizer, and Python sources: `train.txt` and `val.txt`."""
    from transformers import GPT2Config

    lines = sources("argparse.py", "inspect.py", "typing.py").splitlines(keepends=True)
    parts: dict[str, list[str]] = {"train": [], "val": []}
    for at, line in enumerate(lines):  # every tenth piece of 20 lines is for the evaluation
        parts["train" if at // 20 % 10 else "val"].append(line)
    for name, part in parts.items():
        (folder / f"{name}.txt").write_text("".join(part))
    tokens = write_tokenizer(folder / "model", parts["train"], 512, 64)
    GPT2Config(
        vocab_size=tokens, n_positions=64, n_embd=64, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=1
    ).save_pretrained(folder / "model")


def sentences(count: int, seed: int) -> list[dict[str, str]]:
    """Returns sentences with the labels of FinancialPhraseBank."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        label = draw.choice(list(WORDS))
        words = [draw.choice(SUBJECTS), draw.choice(WORDS[label]), draw.choice(ENDS), "and", draw.choice(SUBJECTS)]
        made.append(
            {"sentence": " ".join(words), "label": draw.choice(list(WORDS)) if draw.random() < 1 / 12 else label}
        )
    return made


def write_sequences(folder: Path) -> None:
    """Writes `t5-base/`, a small T5 that has been trained to repeat the subject of a sentence, and sentences."""
    import torch
    from transformers import AutoTokenizer, T5Config, T5ForConditionalGeneration

    data = folder / "temp" / "data" / "FinancialPhraseBank-v1.0"
    data.mkdir(parents=True, exist_ok=True)
    for part, count, seed in (("train", 1800, 1), ("val", 300, 2)):
        rows = "\n".join(map(json.dumps, sentences(count, seed)))
        (data / f"financial_phrase_bank_{part}.jsonl").write_text(rows)
    home, known = folder / "t5-base", sentences(800, 3)
    tokens = write_tokenizer(home, [" ".join(row.values()) for row in known], 128, 64, words=True)
    torch.manual_seed(SEED)
    sizes = {"d_model": 64, "d_kv": 32, "d_ff": 128, "num_layers": 2, "num_heads": 2}
    model = T5ForConditionalGeneration(
        T5Config(vocab_size=tokens, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, **sizes)
    )
    tokenizer, optimizer = AutoTokenizer.from_pretrained(home), torch.optim.AdamW(model.parameters(), lr=3e-3)
    for at in range(0, len(known), 16):
        texts = [row["sentence"] for row in known[at : at + 16]]
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        labels = tokenizer([text.split()[0] for text in texts], return_tensors="pt")["input_ids"]
        model(**{key: batch[key] for key in ("input_ids", "attention_mask")}, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(home)


def write_images(folder: Path) -> None:
    """Writes the digits of Paceline as pictures of 32 x 32, a folder for each class."""
    from PIL import Image

    import paceline

    for at, (image, target) in enumerate(zip(*paceline.load_digits(), strict=True)):
        home = folder / "images" / ("train" if at < 1500 else "validation") / str(int(target))
        home.mkdir(parents=True, exist_ok=True)
        pixels = (image[0] * 254.4).numpy().astype("uint8")
        Image.fromarray(pixels).convert("RGB").resize((32, 32)).save(home / f"{at}.png")


def write_words(folder: Path) -> None:
    """Writes text as word_language_model reads it: words of Python's own sources, the rare ones as `unk`."""
    text = sources("argparse.py", "inspect.py", "typing.py", "subprocess.py", "socket.py", "tarfile.py")
    words = re.findall(r"[a-z]+", text.lower())
    common = {word for word, _ in Counter(words).most_common(1000)}
    words = [word if word in common else "unk" for word in words]
    lines = [" ".join(words[at : at + 20]) for at in range(0, 65_000, 20)]
    (folder / "words").mkdir()
    for name, turns in (("train", range(18)), ("valid", [18]), ("test", [19])):
        part = "".join(f"{line}\n" for at, line in enumerate(lines) if at % 20 in turns)
        (folder / "words" / f"{name}.txt").write_text(part)


WRITERS = {"words": write_words, "causal_lm": write_causal_lm, "sequences": write_sequences, "images": write_images}

if __name__ == "__main__":
    made = Path(sys.argv[2])
    made.mkdir(parents=True, exist_ok=True)
    WRITERS[sys.argv[1]](made)
