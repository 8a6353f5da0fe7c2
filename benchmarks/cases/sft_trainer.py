# TRL's SFTTrainer with adapters of PEFT as a worker (huggingface/trl).
from __future__ import annotations

import datasets
import torch
import trl
from _case import RANK, SCHEME, report
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from paceline.integrations.transformers import PacelineTrainer

WORDS = 48


class Tuner(PacelineTrainer, trl.SFTTrainer):
    pass


vocabulary = {f"w{i}": i for i in range(WORDS)} | {"[PAD]": WORDS, "[EOS]": WORDS + 1}
tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", eos_token="[EOS]", unk_token="w0")
texts = [" ".join(f"w{(start + 3 * k) % WORDS}" for k in range(4 + start % 9)) for start in range(96)]
torch.manual_seed(0)
ends = {"pad_token_id": WORDS, "eos_token_id": WORDS + 1}
model = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS + 2, n_positions=32, n_embd=32, n_layer=2, n_head=2, **ends))
arguments = trl.SFTConfig(
    output_dir=f"out{RANK}", per_device_train_batch_size=4, num_train_epochs=6, learning_rate=1e-2, report_to=[],
    save_strategy="no", use_cpu=True, disable_tqdm=True, logging_strategy="no", max_length=16, bf16=False,
)  # fmt: skip
tuner = Tuner(
    model=model, args=arguments, train_dataset=datasets.Dataset.from_list([{"text": text} for text in texts]),
    processing_class=fast, scheme=SCHEME,
    peft_config=LoraConfig(r=4, target_modules=["c_attn"], task_type="CAUSAL_LM", fan_in_fan_out=True),
)  # fmt: skip
report(loss=round(tuner.train().training_loss, 3), steps=tuner.state.global_step)
