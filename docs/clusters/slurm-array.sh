#!/bin/bash
# An array of jobs, each with one GPU and a share of the networks. Submit it with
#   sbatch docs/clusters/slurm-array.sh
# and submit it again to compute what a job has lost.
#SBATCH --job-name=ntkscore
#SBATCH --array=0-7
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=8
#SBATCH --mem=32G
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --signal=B:TERM@60
#SBATCH --output=%x-%A-%a.log

set -eu
OUT=${OUT:-/shared/runs/space}

# `exec` lets the signal before the time limit reach the command itself.
exec ntkscore score distinct --data cifar10 --out "$OUT" \
    --processes "$SLURM_ARRAY_TASK_COUNT" --process "$SLURM_ARRAY_TASK_ID"
