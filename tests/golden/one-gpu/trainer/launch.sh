#!/usr/bin/env bash
# Plan: Train openai-community/gpt2 on 1 node x 1 rtx-4090 = 1 GPU with no parallelism, micro-batch 8 x 8 accumulation x 1 rank = 64 sequences per step.
#
# bash launch.sh [arguments of train.py]
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"

export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
# Memory that PyTorch frees can be joined into larger pieces: less is lost between them.
export PYTORCH_ALLOC_CONF="${PYTORCH_ALLOC_CONF:-expandable_segments:True}"

exec torchrun \
  --standalone \
  --nproc_per_node="${NPROC_PER_NODE:-1}" \
  -- train.py "$@"
