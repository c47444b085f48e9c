#!/usr/bin/env bash
# Plan: Train tiny-llama on 2 nodes x 4 h100-sxm-80gb = 8 GPUs with ZeRO-1, tensor parallel 2 with sequence parallelism, pipeline parallel 2 (1f1b), micro-batch 16 x 2 accumulation x 2 ranks = 64 sequences per step.
#
# On every node: NODE_RANK=0..1 MASTER_ADDR=<address of node 0> MEGATRON_PATH=<checkout of Megatron-LM> bash launch.sh [arguments of pretrain_gpt.py]
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
: "${MEGATRON_PATH:?set it to a checkout of Megatron-LM, whose pretrain_gpt.py is started}"

export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
# Memory that PyTorch frees can be joined into larger pieces: less is lost between them.
export PYTORCH_ALLOC_CONF="${PYTORCH_ALLOC_CONF:-expandable_segments:True}"
# InfiniBand or RoCE: NCCL finds the adapters; NCCL_IB_HCA=mlx5_0,mlx5_1 names them where some are not for it.

# Up to Hopper, communication overlaps computation only with one queue for both.
export CUDA_DEVICE_MAX_CONNECTIONS="${CUDA_DEVICE_MAX_CONNECTIONS:-1}"

model=(
  --use-mcore-models
  --num-layers 8
  --hidden-size 512
  --ffn-hidden-size 1024
  --num-attention-heads 8
  --kv-channels 64
  --position-embedding-type rope
  --rotary-base 10000
  --normalization RMSNorm
  --norm-epsilon 1e-06
  --swiglu
  --disable-bias-linear
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --group-query-attention
  --num-query-groups 4
  --untie-embeddings-and-output-weights
  --max-position-embeddings 2048
  --init-method-std 0.02
  --make-vocab-size-divisible-by 128
)
parallelism=(
  --tensor-model-parallel-size 2
  --pipeline-model-parallel-size 2
  --context-parallel-size 1
  --sequence-parallel
  --use-distributed-optimizer
  --overlap-grad-reduce
  --overlap-param-gather
)
training=(
  --micro-batch-size 16
  --global-batch-size 64
  --seq-length 512
  --train-iters 100
  --lr 3e-4
  --min-lr 3e-5
  --lr-decay-style cosine
  --lr-warmup-iters 10
  --weight-decay 0.01
  --adam-beta2 0.999
  --clip-grad 1.0
  --eval-iters 0
  --log-interval 1
  --log-throughput
  --distributed-timeout-minutes 30
  --attention-backend auto
  --bf16
)
# Without data of the user's, synthetic tokens: enough to measure speed and memory.
data=(--mock-data --tokenizer-type NullTokenizer --vocab-size 31999)
if [[ " $* " == *" --data-path "* ]]; then
  data=(--tokenizer-type HuggingFaceTokenizer --tokenizer-model tiny-llama)
fi

: "${NODE_RANK:?set it to the number of this node, 0 to 1}"
: "${MASTER_ADDR:?set it to the address of node 0}"

exec torchrun \
  --nnodes=2 \
  --node_rank="${NODE_RANK}" \
  --rdzv_backend=static \
  --master_addr="${MASTER_ADDR}" \
  --master_port="${MASTER_PORT:-29500}" \
  --nproc_per_node="${NPROC_PER_NODE:-4}" \
  -- "${MEGATRON_PATH}/pretrain_gpt.py" \
  "${model[@]}" "${parallelism[@]}" "${training[@]}" "${data[@]}" "$@"
