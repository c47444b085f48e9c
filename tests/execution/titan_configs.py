"""Small models of the kinds that torchtitan has parts for, and texts for them."""

import json
import random
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

_SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 512,
    "max_position_embeddings": 128,
}
LLAMA = _SIZES | {
    "model_type": "llama",
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}
MISTRAL = _SIZES | {"model_type": "mistral", "head_dim": 32, "sliding_window": None}
QWEN = _SIZES | {"model_type": "qwen3", "head_dim": 32, "tie_word_embeddings": True}
MIXTURE = _SIZES | {
    "model_type": "qwen3_moe",
    "head_dim": 32,
    "moe_intermediate_size": 32,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
}
_LATENT = {
    **_SIZES,
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
}
_YARN = {
    "type": "yarn",
    "factor": 40,
    "beta_fast": 32,
    "beta_slow": 1,
    "original_max_position_embeddings": 64,
}
SMALL_DEEPSEEK = _LATENT | {
    "model_type": "deepseek_v3",
    "q_lora_rank": 32,
    "n_group": 4,
    "topk_group": 2,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "rope_scaling": _YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
}
DEEPSEEK_V2 = _LATENT | {
    "model_type": "deepseek_v2",
    "q_lora_rank": None,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "greedy",
    "norm_topk_prob": False,
    "routed_scaling_factor": 1.0,
    "rope_scaling": _YARN | {"mscale": 0.707, "mscale_all_dim": 0.707},
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "mistral": MISTRAL,
    "qwen3": QWEN,
    "qwen3_moe": MIXTURE,
    "deepseek_v3": SMALL_DEEPSEEK,
    "deepseek_v2": DEEPSEEK_V2,
}
_WORDS = [f"w{number}" for number in range(200)]
TEXTS = [" ".join(random.Random(seed).choices(_WORDS, k=200)) for seed in range(100)]


def assets(folder: Path) -> Path:
    """Make a folder with a tokenizer, as the Hub has it."""
    folder.mkdir(parents=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    said = {"bos_token": special[0], "eos_token": special[1]}
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    return folder
