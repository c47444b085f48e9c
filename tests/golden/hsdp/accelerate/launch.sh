#!/usr/bin/env bash
# Plan: Train tiny-llama on 2 nodes x 4 h100-sxm-80gb = 8 GPUs with ZeRO-3 (FSDP, full shard), 2 replicas of the shards, micro-batch 8 x 1 accumulation x 8 ranks = 64 sequences per step.
#
# On every node: NODE_RANK=0..1 MASTER_ADDR=<address of node 0> bash launch.sh [arguments of train.py]
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"

export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
# Memory that PyTorch frees can be joined into larger pieces: less is lost between them.
export PYTORCH_ALLOC_CONF="${PYTORCH_ALLOC_CONF:-expandable_segments:True}"
# InfiniBand or RoCE: NCCL finds the adapters; NCCL_IB_HCA=mlx5_0,mlx5_1 names them where some are not for it.

: "${NODE_RANK:?set it to the number of this node, 0 to 1}"
: "${MASTER_ADDR:?set it to the address of node 0}"

exec accelerate launch \
  --config_file accelerate.yaml \
  --machine_rank "${NODE_RANK}" \
  --main_process_ip "${MASTER_ADDR}" \
  --main_process_port "${MASTER_PORT:-29500}" \
  train.py "$@"
