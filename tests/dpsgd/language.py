"""A language model that is built from its configuration, and private fine-tuning of it by LoRA.

Texts are rows of integers. Nothing is downloaded.
"""

import warnings

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.data_loader import DPDataLoader
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

from dpsgd.tracked import quiet

WORDS, LENGTH = 24, 10


class Texts(Dataset):
    """Texts as the model takes them; labels are the texts themselves, −100 where padded."""

    def __init__(self, texts, lengths=None):
        self.texts = torch.as_tensor(texts)
        self.lengths = lengths

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, row):
        labels = self.texts[row].clone()
        if self.lengths is not None:
            labels[self.lengths[row] :] = -100
        return {"input_ids": self.texts[row], "labels": labels}


def ordinary(count, seed):
    """(count, LENGTH) texts in which the next word is mostly the one after the last."""
    rng = np.random.default_rng(seed)
    words = np.zeros((count, LENGTH), dtype=np.int64)
    words[:, 0] = rng.integers(WORDS, size=count)
    for at in range(1, LENGTH):
        jump = np.where(rng.random(count) < 0.9, 1, rng.integers(WORDS, size=count))
        words[:, at] = (words[:, at - 1] + jump) % WORDS
    return torch.as_tensor(words)


def strange(count, seed):
    """(count, LENGTH) texts of random words."""
    rng = np.random.default_rng(seed)
    return torch.as_tensor(rng.integers(WORDS, size=(count, LENGTH)))


def gpt2(seed=0, *, width=16, rank=2, dtype=torch.float32):
    """A small GPT-2 with LoRA on its attention."""
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=WORDS,
        n_positions=LENGTH,
        n_embd=width,
        n_layer=1,
        n_head=2,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
    )
    options = LoraConfig(
        r=rank, lora_alpha=8, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True
    )
    return adapted(GPT2LMHeadModel(config), options, dtype)


def bert(seed=0, *, dtype=torch.float32):
    """A small BERT with LoRA on its attention."""
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=WORDS,
        max_position_embeddings=LENGTH,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=None,
    )
    options = LoraConfig(r=2, lora_alpha=8, target_modules=["query", "value"])
    return adapted(BertForMaskedLM(config), options, dtype)


def adapted(model, options, dtype):
    with warnings.catch_warnings():
        # Of transformers and peft themselves.
        warnings.simplefilter("ignore")
        return get_peft_model(model, options).to(dtype).train()


def private(model, dataset, *, batch_size, sigma=1.0, clip=0.5, rate=0.5, fixed=None, **options):
    """The model, its optimizer and its loader; ``fixed``: a sampling rate that is given."""
    trained = [p for p in model.parameters() if p.requires_grad]
    loader = DataLoader(dataset, batch_size=batch_size)
    if fixed is not None:
        loader = DPDataLoader(dataset, sample_rate=fixed)
        options = {"poisson_sampling": False, **options}
    model, optimizer, loader = quiet(PrivacyEngine).make_private(
        module=model,
        optimizer=torch.optim.SGD(trained, lr=rate),
        data_loader=loader,
        noise_multiplier=sigma,
        max_grad_norm=clip,
        **options,
    )
    if fixed is not None:
        optimizer.expected_batch_size = batch_size
    return model, optimizer, loader


def losses_of(model, texts):
    """(n,) each text's mean loss by token."""
    with torch.no_grad():
        logits = model(input_ids=texts).logits[:, :-1]
    losses = torch.nn.functional.cross_entropy(
        logits.transpose(1, 2), texts[:, 1:], reduction="none"
    )
    return losses.mean(dim=1).double().numpy()
