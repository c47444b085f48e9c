#!/usr/bin/env bash
# Plan: Train tiny-llama on 1 node x 4 a100-sxm-80gb = 4 GPUs with ZeRO-3 (FSDP, full shard), context parallel 2, micro-batch 32 x 1 accumulation x 2 ranks = 64 sequences per step.
#
# bash launchers/docker.sh [arguments of train.py]
# TARGET=<folder> starts another one than torchrun. Paths in the arguments are relative to that
# folder, and what the run writes there stays.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
target="${TARGET:-torchrun}"
image="${IMAGE:-train-tiny-llama:${target}}"

docker build --build-arg "TARGET=${target}" --file launchers/Dockerfile --tag "${image}" .
# NCCL and data loaders pass tensors through /dev/shm, of which a container has 64 MB by itself.
exec docker run --rm --gpus all --ipc=host --network=host \
  --ulimit memlock=-1 --ulimit stack=67108864 \
  --env NODE_RANK --env MASTER_ADDR --env MASTER_PORT --env HF_TOKEN \
  --volume "${PWD}:/bundle" \
  --env HF_HOME=/huggingface --volume "${HF_HOME:-${HOME}/.cache/huggingface}:/huggingface" \
  "${image}" "$@"
