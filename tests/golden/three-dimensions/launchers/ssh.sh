#!/usr/bin/env bash
# Plan: Train tiny-llama on 2 nodes x 4 h100-sxm-80gb = 8 GPUs in torch with ZeRO-1, tensor parallel 2, pipeline parallel 2 (1f1b), micro-batch 16 x 2 accumulation x 2 ranks = 64 sequences per step.
#
# From any machine: bash launchers/ssh.sh [user@]HOST [user@]HOST [-- arguments of train.py]
# The 2 hosts hold this folder under the same path, and reach each other by the first one's name, or by
# MASTER_ADDR.
# Keys, ports and aliases belong in ~/.ssh/config. VENV=<folder> is the environment there, by itself the
# one that is active here. Ctrl-C ends all processes.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../${TARGET:-torchrun}"
VENV="${VENV:-${VIRTUAL_ENV:-}}"

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

# The environment goes over ssh's input: on its command line, `ps` would show a token to everybody.
environment() {
  for name in VENV HF_HOME HF_TOKEN WANDB_API_KEY MEGATRON_PATH NPROC_PER_NODE "${!NCCL_@}"; do
    [[ -z "${!name:-}" ]] || printf 'export %s=%q\n' "${name}" "${!name}"
  done
  echo .
}

# What each host runs: when its input ends, because this script has, it tells its processes to end.
# shellcheck disable=SC2016 # the host's shell expands it
remote='set -e; exec 3<&0;
while IFS= read -r line && [[ "${line}" != . ]]; do eval "${line}"; done;
cd -- "$1"; [[ -z "${VENV:-}" ]] || source "${VENV}/bin/activate";
NODE_RANK="$2" MASTER_ADDR="$3" MASTER_PORT="$4" bash launch.sh "${@:5}" </dev/null & launched="$!";
{ cat; kill "${launched}"; } <&3 >/dev/null 2>&1 & watcher="$!";
status=0; wait "${launched}" || status="$?"; kill "${watcher}" 2>/dev/null || true; exit "${status}"'

inputs=()
pipes="$(mktemp -d)"
stop() {
  for input in "${inputs[@]}"; do exec {input}>&-; done
  rm -rf -- "${pipes}"
  wait
}
trap stop EXIT
for rank in "${!hosts[@]}"; do
  # ssh joins its arguments with spaces for the remote shell: each is quoted for that shell.
  command="$(printf '%q ' bash -c "${remote//$'\n'/ }" launch "${PWD}" "${rank}" \
    "${MASTER_ADDR:-${hosts[0]#*@}}" "${MASTER_PORT:-29500}" "$@")"
  mkfifo -- "${pipes}/${rank}"
  ssh -o BatchMode=yes -o ServerAliveInterval=15 -- "${hosts[rank]}" "${command}" <"${pipes}/${rank}" &
  exec {input}>"${pipes}/${rank}"
  inputs+=("${input}")
  environment >&"${input}"
done
for _ in "${hosts[@]}"; do
  wait -n || exit "$?"
done
