#!/usr/bin/env bash
# Plan: Train tiny-llama on 2 nodes x 4 h100-sxm-80gb = 8 GPUs in torch with ZeRO-1, tensor parallel 2, pipeline parallel 2 (1f1b), micro-batch 16 x 2 accumulation x 2 ranks = 64 sequences per step.
#
# On every node: NODE_RANK=0..1 MASTER_ADDR=<address of node 0> bash launch.sh [arguments of train.py]
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"

export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
# Memory that PyTorch frees can be joined into larger pieces: less is lost between them.
export PYTORCH_ALLOC_CONF="${PYTORCH_ALLOC_CONF:-expandable_segments:True}"
# InfiniBand or RoCE: NCCL finds the adapters; NCCL_IB_HCA=mlx5_0,mlx5_1 names them where some are not for it.
# Slurm warns of a limit by SIGUSR1, which is for train.py: the launcher would end at it.
trap '' USR1
# Told to end, train.py finishes its step and saves: the launcher waits as long before it kills.
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT="${TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-120}"
python="$(command -v python || command -v python3)"

: "${NODE_RANK:?set it to the number of this node, 0 to 1}"
: "${MASTER_ADDR:?set it to the address of node 0}"

exec "${python}" ../launcher.py torchrun \
  --nnodes=2 \
  --node_rank="${NODE_RANK}" \
  --rdzv_backend=static \
  --master_addr="${MASTER_ADDR}" \
  --master_port="${MASTER_PORT:-29500}" \
  --nproc_per_node="${NPROC_PER_NODE:-4}" \
  -- train.py "$@"
