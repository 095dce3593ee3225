#!/bin/bash
# A worker on every host of a TPU slice; the first host scores. Start it on your own machine with
#   python -m pip wheel --no-deps --wheel-dir dist .
#   docs/clusters/tpu.sh NAME ZONE gs://bucket/space
# and start it again to go on from where it ended.
set -eu
NAME=$1
ZONE=$2
OUT=$3
SSH=(gcloud compute tpus tpu-vm ssh "$NAME" --zone "$ZONE")
FIRST=$("${SSH[@]}" --worker=0 --command hostname)
SCHEDULER=tcp://$FIRST:8786

gcloud compute tpus tpu-vm scp dist/ntkscore-*.whl "$NAME:" --zone "$ZONE" --worker=all
# Without these bounds a host's chips would wait for those of the others.
"${SSH[@]}" --worker=all --command "
set -eu
test -d ntkscore-env || python3 -m venv ntkscore-env
. ntkscore-env/bin/activate
python -m pip install --quiet \"\$(ls ./ntkscore-*.whl)[tpu,cloud,cluster]\" gcsfs
test \"\$(hostname)\" != '$FIRST' || nohup dask scheduler --port 8786 >scheduler.log 2>&1 &
TPU_PROCESS_BOUNDS=1,1,1 TPU_CHIPS_PER_PROCESS_BOUNDS=2,2,1 \
    nohup dask worker '$SCHEDULER' --nthreads 1 --memory-limit 0 --death-timeout 600 >worker.log 2>&1 &"
"${SSH[@]}" --worker=0 --command "
set -eu
. ntkscore-env/bin/activate
ntkscore fetch cifar10
exec ntkscore score distinct --data cifar10 --out '$OUT' --scheduler '$SCHEDULER'"
