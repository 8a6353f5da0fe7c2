"""Adapters of PEFT in a loop of one's own, on two unlike workers. The model is made from a config.

pip install 'paceline[adapters]'
python examples/18_peft.py                                   alone
paceline launch -n 2 -s 1 --slowdown 1,2.5 --step-ms 100 --batch-limits 32,8 python examples/18_peft.py

The plain loop, and what is different below:

    optimizer = torch.optim.AdamW(model.parameters())        pace = paceline.join(model, optimizer, scheme="esync")
    for batch in DataLoader(data, 32, shuffle=True, ...):    for batch in pace.loader(data, 32, epochs=EPOCHS, ...):
        model(**batch).loss.backward()
        optimizer.step()                                     pace.step()
                                                             pace.close()

Sentences are of unlike length, and the loss is a mean over tokens; so `samples_of` lets each batch weigh its tokens.
"""

import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

import paceline

WORDS, EPOCHS, BATCH = 48, 3, int(sys.argv[1]) if len(sys.argv) > 1 else 32
PAD, IGNORED = WORDS, -100


def sentences(count, seed):
    """Sentences of 6 to 20 words; after each word one of two may follow, so no model has a loss below ln 2."""
    draw = torch.Generator().manual_seed(seed)
    for length in torch.randint(6, 21, (count,), generator=draw).tolist():
        word, turns = 0, torch.randint(0, 2, (length,), generator=draw).tolist()
        yield torch.tensor([word := (5 * word + 7 + 3 * turn) % WORDS for turn in turns])


def padded(batch):
    rows = torch.nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value=PAD)
    return {"input_ids": rows, "attention_mask": rows != PAD, "labels": rows.masked_fill(rows == PAD, IGNORED)}


def tokens(batch):
    return int((batch["labels"][:, 1:] != IGNORED).sum())


def body():
    """The frozen model, the same wherever it is made; one of yours is `from_pretrained`."""
    torch.manual_seed(0)
    sizes = {"vocab_size": WORDS + 1, "n_positions": 24, "n_embd": 64, "n_layer": 2, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**sizes, tie_word_embeddings=False, bos_token_id=PAD, eos_token_id=PAD))


@torch.no_grad()
def loss_of(model):
    model.eval()
    return float(model(**padded(list(sentences(256, 1)))).loss)


torch.set_num_threads(1)  # a model as small as this gains nothing by more
adapters = LoraConfig(r=8, target_modules=["c_attn"], fan_in_fan_out=True, modules_to_save=["lm_head"])
model = get_peft_model(body(), adapters)
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
pace = paceline.join(model, optimizer, scheme="esync")
for batch in pace.loader(list(sentences(1536, 0)), BATCH, epochs=EPOCHS, collate_fn=padded, samples_of=tokens):
    model(**batch).loss.backward()
    pace.step()
pace.close()
if pace.rank == 0:
    loss = loss_of(model)
    model.save_pretrained("runs/peft")
    loaded = loss_of(PeftModel.from_pretrained(body(), "runs/peft"))  # as whoever has the adapters loads them
    print(f"loss {loss:.3f}, of the saved adapters in plain PEFT {loaded:.3f}")
