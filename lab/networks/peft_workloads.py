"""LoRA by Hugging Face's PEFT, on a transformer of random weights that is built from a config."""

from typing import Any

import torch
from peft import (
    LoraConfig,
    get_peft_model,
    get_peft_model_state_dict,
    set_peft_model_state_dict,
)
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from lab.networks.torch_workloads import (
    BATCH_COUNT,
    Adapter,
    Parts,
    Workload,
    adamw,
    next_word_loss,
)

WORDS = 8192
TOKENS = (2, 33)  # of a batch
LARGE = {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 6}
TINY = {"hidden_size": 384, "intermediate_size": 384, "num_hidden_layers": 2}


def word_loss(found: Any, wanted: Tensor) -> Tensor:
    return next_word_loss(found.logits, wanted)


def peft_parts(sizes: dict[str, int]) -> Parts:
    config = LlamaConfig(vocab_size=WORDS, num_attention_heads=12, use_cache=False, **sizes)
    model = get_peft_model(LlamaForCausalLM(config), LoraConfig(r=8, lora_dropout=0.05))
    texts = [torch.randint(WORDS, TOKENS) for _ in range(BATCH_COUNT)]
    batches = [(text[:, :-1], text[:, 1:]) for text in texts]
    adapter = Adapter(get_peft_model_state_dict, set_peft_model_state_dict)
    return Parts(model, adamw, word_loss, batches, adapter=adapter)


WORKLOADS: dict[str, Workload] = {
    "peft": Workload("LoRA by PEFT on a frozen transformer, AdamW", 10, lambda: peft_parts(LARGE)),
    "tiny-peft": Workload("smoke size: LoRA by PEFT", 2, lambda: peft_parts(TINY)),
}
