#!/usr/bin/env bash
#SBATCH --job-name=train-tiny-llama
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --output=%x-%j.out
#
# Plan: Train tiny-llama on 1 node x 4 a100-sxm-80gb = 4 GPUs with ZeRO-3 (FSDP, full shard), context parallel 2, micro-batch 32 x 1 accumulation x 2 ranks = 64 sequences per step.
#
# From the folder that holds launchers/: sbatch launchers/slurm.sh [arguments of train.py]
# TARGET=<folder> starts another one than torchrun; partition, account and time are your cluster's:
# sbatch --partition=gpu --time=24:00:00 launchers/slurm.sh
set -euo pipefail
# Slurm runs a copy of this file from its own folder.
cd -- "${SLURM_SUBMIT_DIR}/${TARGET:-torchrun}"

# The address that Slurm itself reaches the job's first host at.
first_host="$(scontrol show hostnames "${SLURM_JOB_NODELIST}" | head -n 1)"
MASTER_ADDR="$(scontrol show node "${first_host}" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p' | head -n 1)"
MASTER_PORT="${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 10000))}"
export MASTER_ADDR MASTER_PORT

# One task per node: its launch.sh starts the processes. When one of them fails, all end.
# shellcheck disable=SC2016 # the task's shell expands SLURM_NODEID
exec srun --kill-on-bad-exit=1 --cpu-bind=none \
  bash -c 'NODE_RANK="${SLURM_NODEID}" exec bash launch.sh "$@"' launch "$@"
