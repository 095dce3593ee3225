#!/bin/bash
# One job of several nodes, with a process on each that uses all of the node's GPUs. Submit it with
#   sbatch docs/clusters/slurm-nodes.sh
#SBATCH --job-name=ntkscore
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=32
#SBATCH --time=04:00:00
#SBATCH --no-kill
#SBATCH --signal=TERM@60
#SBATCH --output=%x-%j.log

set -eu
export OUT=${OUT:-/shared/runs/space}

# A lost node ends its own process alone. Each task has a number of its own, so it is read there.
# shellcheck disable=SC2016
exec srun --no-kill --kill-on-bad-exit=0 bash -c '
exec ntkscore score distinct --data cifar10 --out "$OUT" \
    --processes "$SLURM_NTASKS" --process "$SLURM_PROCID"'
