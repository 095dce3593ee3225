#!/bin/bash
# One job: a scheduler, a worker on every GPU, and the command that scores. Submit it with
#   sbatch docs/clusters/slurm.sh
# and submit it again to go on from where it ended.
#SBATCH --job-name=ntkscore
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --no-kill
#SBATCH --signal=B:TERM@60
#SBATCH --output=%x-%j.log

set -eu
OUT=${OUT:-/shared/runs/space}
PORT=${PORT:-8786}
SCHEDULER=tcp://$(hostname):$PORT

dask scheduler --port "$PORT" &
# A lost node ends its own workers alone.
srun --no-kill --kill-on-bad-exit=0 \
    dask worker "$SCHEDULER" --nthreads 1 --memory-limit 0 --death-timeout 600 &
# `exec` lets the signal before the time limit reach the command itself.
exec ntkscore score distinct --data cifar10 --out "$OUT" --scheduler "$SCHEDULER"
