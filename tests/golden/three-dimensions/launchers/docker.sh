#!/usr/bin/env bash
# Plan: Train tiny-llama on 2 nodes x 4 h100-sxm-80gb = 8 GPUs in torch with ZeRO-1, tensor parallel 2, pipeline parallel 2 (1f1b), micro-batch 16 x 2 accumulation x 2 ranks = 64 sequences per step.
#
# On every node: NODE_RANK=0..1 MASTER_ADDR=<address of node 0> bash launchers/docker.sh [arguments of train.py]
# IMAGE=<name> runs one that is built or pushed already, so that not every node builds its own. Paths in the arguments are relative to the target's folder, and
# what the run writes there stays.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

image="${IMAGE:-train-tiny-llama}"
if [[ -z "${IMAGE:-}" ]]; then
  docker build --file launchers/Dockerfile --tag "${image}" .
fi
# Adapters that NCCL can use without the kernel, where this machine has some.
adapters=()
if [[ -e /dev/infiniband ]]; then
  adapters=(--cap-add=IPC_LOCK --device=/dev/infiniband)
fi
# What this shell says to NCCL, such as NCCL_SOCKET_IFNAME, is for the processes.
nccl=()
for name in "${!NCCL_@}"; do nccl+=(--env "${name}"); done
# Files that it writes are yours; Docker would make a cache that is not there yet root's.
cache="${HF_HOME:-${HOME}/.cache/huggingface}"
mkdir -p -- "${cache}"
# NCCL and data loaders pass tensors through /dev/shm, of which a container has 64 MB by itself: this one
# has the host's. Told to end, the processes save first.
exec docker run --rm --gpus all --user "$(id -u):$(id -g)" --ipc=host --network=host \
  --ulimit memlock=-1 --ulimit stack=67108864 --stop-timeout 150 \
  ${adapters[@]+"${adapters[@]}"} \
  --env TARGET="${TARGET:-torchrun}" \
  --env NODE_RANK --env MASTER_ADDR --env MASTER_PORT --env NPROC_PER_NODE --env HF_TOKEN --env WANDB_API_KEY \
  ${nccl[@]+"${nccl[@]}"} \
  --volume "${PWD}:/bundle" \
  --env HF_HOME=/huggingface --volume "${cache}:/huggingface" \
  "${image}" "$@"
