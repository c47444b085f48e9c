#!/usr/bin/env bash
# Plan: Train tiny-llama on 2 nodes x 4 h100-sxm-80gb = 8 GPUs with ZeRO-1, tensor parallel 2 with sequence parallelism, pipeline parallel 2 (1f1b), micro-batch 16 x 2 accumulation x 2 ranks = 64 sequences per step.
#
# From any machine: bash launchers/ssh.sh HOST HOST [-- arguments of train.py]
# The 2 hosts hold this folder under the same path, and reach each other by the first one's name.
# TARGET=<folder> starts another one than megatron.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../${TARGET:-megatron}"

hosts=()
while [[ $# -gt 0 && "$1" != "--" ]]; do
  hosts+=("$1")
  shift
done
[[ $# -eq 0 ]] || shift
if [[ "${#hosts[@]}" -ne 2 ]]; then
  echo "name 2 hosts, not ${#hosts[@]}" >&2
  exit 2
fi

# ssh joins its arguments with spaces for the remote shell: each is quoted for that shell.
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true' EXIT
for rank in "${!hosts[@]}"; do
  command="$(printf '%q ' cd "${PWD}")&& $(printf '%q ' exec env "NODE_RANK=${rank}" \
    "MASTER_ADDR=${hosts[0]}" "MASTER_PORT=${MASTER_PORT:-29500}" \
    ${MEGATRON_PATH:+"MEGATRON_PATH=${MEGATRON_PATH}"} bash launch.sh "$@")"
  # With a terminal, the remote processes end when ssh does.
  ssh -tt -o BatchMode=yes -- "${hosts[rank]}" "${command}" </dev/null &
  pids+=("$!")
done
for _ in "${pids[@]}"; do
  wait -n || exit "$?"
done
