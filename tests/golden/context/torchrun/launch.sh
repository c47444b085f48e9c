#!/usr/bin/env bash
# Plan: Train tiny-llama on 1 node x 4 a100-sxm-80gb = 4 GPUs with ZeRO-3 (FSDP, full shard), context parallel 2, micro-batch 32 x 1 accumulation x 2 ranks = 64 sequences per step.
#
# bash launch.sh [arguments of train.py]
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"

export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
# Memory that PyTorch frees can be joined into larger pieces: less is lost between them.
export PYTORCH_ALLOC_CONF="${PYTORCH_ALLOC_CONF:-expandable_segments:True}"

exec torchrun \
  --standalone \
  --nproc_per_node="${NPROC_PER_NODE:-4}" \
  -- train.py "$@"
