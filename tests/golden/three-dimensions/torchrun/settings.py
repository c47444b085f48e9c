"""The plan: its model, its batch, and what it expects. Change the batch or the length here."""

from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
MODEL = "tiny-llama"
REVISION = "main"
MODEL_OPTIONS = {"dtype": torch.float32, "attn_implementation": "sdpa"}
WORLD_SIZE = 8  # processes, one per GPU
SEQUENCE_LENGTH = 512
MICRO_BATCH_SIZE = 16  # sequences per process in one forward pass
GLOBAL_BATCH_SIZE = 64  # sequences per optimizer step
FLOPS_PER_TOKEN = 224_133_120  # forward and backward
PEAK_FLOPS_PER_SECOND = 989_000_000_000_000  # of one GPU
EXPECTED_TOKENS_PER_SECOND = 36_601  # of one GPU
EXPECTED_PEAK_GIB = 3.01
TRIED = {  # packages, and the oldest and newest release that ran this script
    "torch": ("2.13.0", "2.13.0"),
    "transformers": ("5.4.0", "5.23.0"),
}
TENSOR_PARALLEL_SIZE = 2
PIPELINE_PARALLEL_SIZE = 2
LAYERS_PER_STAGE = (4, 4)
