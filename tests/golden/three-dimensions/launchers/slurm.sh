#!/usr/bin/env bash
#SBATCH --job-name=train-tiny-llama
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=00:40:00
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#
# Plan: Train tiny-llama on 2 nodes x 4 h100-sxm-80gb = 8 GPUs in torch with ZeRO-1, tensor parallel 2, pipeline parallel 2 (1f1b), micro-batch 16 x 2 accumulation x 2 ranks = 64 sequences per step.
#
# sbatch launchers/slurm.sh [arguments of train.py]
# The time is for 1000 steps of the plan's 112 ms and as long again, and half an hour to start;
# a day at most. Partition, account and another time are your cluster's:
# sbatch --partition=gpu --account=me --time=4:00:00 launchers/slurm.sh
# 2 minutes before the time is up
# the processes get USR1, by which they save; with `--resume latest` the job then queues again, and goes on.
set -euo pipefail

# The environment that has the requirements: `VENV=<folder> sbatch ...`, or the one that sbatch was
# called in. What your cluster needs besides, such as `module load cuda`, belongs here.
if [[ -n "${VENV:-}" ]]; then
  # shellcheck source=/dev/null
  source "${VENV}/bin/activate"
fi
# Slurm runs a copy of this file, and knows where the file itself lies.
launchers="$(scontrol show job "${SLURM_JOB_ID}" | sed -n 's|^ *Command=\(.*\)/slurm\.sh.*|\1|p' | head -n 1)"
cd -- "${launchers:?this file is to be called slurm.sh}/../${TARGET:-torchrun}"

# The address that Slurm itself reaches the job's first host at.
first_host="$(scontrol show hostnames "${SLURM_JOB_NODELIST}" | head -n 1)"
MASTER_ADDR="$(scontrol show node "${first_host}" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p' | head -n 1)"
MASTER_PORT="${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 10000))}"
export MASTER_ADDR MASTER_PORT

# One task per node: its launch.sh starts the processes. When one of them fails, all end. USR1 means
# "save" to the processes alone: what starts them ignores it.
# shellcheck disable=SC2016 # the task's shell expands SLURM_NODEID
srun --kill-on-bad-exit=1 --cpu-bind=none \
  bash -c 'trap "" USR1; NODE_RANK="${SLURM_NODEID}" exec bash launch.sh "$@"' launch "$@" &
tasks="$!"
is_over=""
trap 'is_over=yes; kill -USR1 "${tasks}"' USR1 # srun hands it on to the tasks
status=0
wait "${tasks}" || status="$?"

if [[ -n "${is_over}" ]]; then
  if [[ " $* " == *" --resume latest "* ]]; then
    for _ in {1..100}; do # seconds in which they may save
      kill -0 "${tasks}" 2>/dev/null || break
      sleep 1
    done
    exec scontrol requeue "${SLURM_JOB_ID}"
  fi
  status=0
  wait "${tasks}" || status="$?"
fi
exit "${status}"
