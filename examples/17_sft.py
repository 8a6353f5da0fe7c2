"""Adapters of PEFT in TRL's SFTTrainer, on two unlike workers. The model is made from a config; nothing is downloaded.

    plain:  trainer = SFTTrainer(model=model, args=args, train_dataset=train, peft_config=adapters)
    here:   class Tuner(PacelineTrainer, SFTTrainer): pass
            trainer = Tuner(model=model, args=args, train_dataset=train, peft_config=adapters, scheme="esync")

pip install 'paceline[adapters]'
python examples/17_sft.py                                   alone
paceline launch -n 2 -s 1 --slowdown 1,2.5 --step-ms 100 --batch-limits 32,8 python examples/17_sft.py
"""

import sys

import datasets
import torch
import trl
from peft import LoraConfig, PeftModel
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from paceline.integrations.transformers import PacelineTrainer

WORDS, BATCH = 48, int(sys.argv[1]) if len(sys.argv) > 1 else 32


class Tuner(PacelineTrainer, trl.SFTTrainer):
    """An SFTTrainer whose processes are workers at their own speed."""


def sentences(count, seed):
    """Sentences of 6 to 20 words; after each word one of two may follow, so no model has a loss below ln 2."""
    draw = torch.Generator().manual_seed(seed)
    for length in torch.randint(6, 21, (count,), generator=draw).tolist():
        word, turns = 0, torch.randint(0, 2, (length,), generator=draw).tolist()
        words = [word := (5 * word + 7 + 3 * turn) % WORDS for turn in turns]
        yield {"text": " ".join(f"w{word}" for word in words)}


words = {f"w{i}": i for i in range(WORDS)} | {"[PAD]": WORDS, "[EOS]": WORDS + 1}
tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", eos_token="[EOS]")
config = GPT2Config(
    vocab_size=len(words), n_positions=24, n_embd=64, n_layer=2, n_head=2, tie_word_embeddings=False,
    pad_token_id=WORDS, eos_token_id=WORDS + 1,
)  # fmt: skip
adapters = LoraConfig(r=8, target_modules=["c_attn"], fan_in_fan_out=True, modules_to_save=["lm_head"])


def body():
    """The frozen model, the same wherever it is made; one of yours is `from_pretrained`."""
    torch.manual_seed(0)
    return GPT2LMHeadModel(config)


datasets.disable_progress_bars()
torch.set_num_threads(1)  # a model as small as this gains nothing by more
args = trl.SFTConfig(
    "runs/sft", num_train_epochs=3, per_device_train_batch_size=BATCH, learning_rate=1e-2, save_strategy="no",
    logging_strategy="no", report_to=[], use_cpu=True, bf16=False, disable_tqdm=True, max_length=24,
)  # fmt: skip
data = [datasets.Dataset.from_list(list(sentences(count, seed))) for seed, count in enumerate((1536, 256))]
trainer = Tuner(
    model=body(), args=args, train_dataset=data[0], eval_dataset=data[1], processing_class=tokenizer,
    peft_config=adapters, scheme="esync",
)  # fmt: skip
trainer.train()
if trainer.pace.rank == 0:
    loss = trainer.evaluate()["eval_loss"]
    trainer.save_model("runs/sft/adapters")
    loaded = PeftModel.from_pretrained(body(), "runs/sft/adapters")  # as whoever has the adapters loads them
    plain = trl.SFTTrainer(
        model=loaded, args=args, train_dataset=data[1], eval_dataset=data[1], processing_class=tokenizer
    )
    print(f"loss {loss:.3f}, of the saved adapters in plain PEFT {plain.evaluate()['eval_loss']:.3f}")
