"""The plan: its model, its batch, and what it expects. Change the batch or the length here."""

from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
MODEL = "openai-community/gpt2"
REVISION = "main"
MODEL_OPTIONS = {"dtype": torch.float32, "attn_implementation": "sdpa"}
WORLD_SIZE = 4  # processes, one per GPU
SEQUENCE_LENGTH = 512
MICRO_BATCH_SIZE = 2  # sequences per process in one forward pass
GLOBAL_BATCH_SIZE = 64  # sequences per optimizer step
FLOPS_PER_TOKEN = 769_503_744  # forward and backward
PEAK_FLOPS_PER_SECOND = 19_500_000_000_000  # of one GPU
EXPECTED_TOKENS_PER_SECOND = 9_457  # of one GPU
EXPECTED_PEAK_GIB = 1.81
TRIED = {  # packages, and the oldest and newest release that ran this script
    "torch": ("2.13.0", "2.13.0"),
    "transformers": ("5.4.0", "5.23.0"),
    "accelerate": ("1.10.1", "1.15.0"),
    "deepspeed": ("0.19.8", "0.19.8"),
}
PIPELINE_PARALLEL_SIZE = 2
LAYERS_PER_STAGE = (6, 6)
