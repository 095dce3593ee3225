#!/bin/bash
# All hosts of a TPU pod slice; the results lie in a bucket. Start it on your own machine with
#   python -m pip wheel --no-deps --wheel-dir dist .
#   docs/clusters/tpu.sh NAME ZONE gs://bucket/space
# and start it again to compute what a host has lost.
set -eu
NAME=$1
ZONE=$2
OUT=$3

gcloud compute tpus tpu-vm scp dist/ntkscore-*.whl "$NAME:" --zone "$ZONE" --worker=all
# The hosts of a slice start their chips together, so here JAX joins the processes.
gcloud compute tpus tpu-vm ssh "$NAME" --zone "$ZONE" --worker=all --command "
set -eu
test -d ntkscore-env || python3 -m venv ntkscore-env
. ntkscore-env/bin/activate
python -m pip install --quiet \"\$(ls ./ntkscore-*.whl)[tpu,cloud]\" gcsfs
ntkscore fetch cifar10
exec ntkscore score distinct --data cifar10 --out '$OUT' --distributed"
