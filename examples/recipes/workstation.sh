#!/bin/bash
# A training that starts again until it is done, however it ends: on a machine whose kernel may kill
# it for want of memory, or whose owner does. RUN is on the fast disk, FAR on another one.
set -u
RUN=${RUN:-runs/digits}
FAR=${FAR:-/mnt/big/digits}
TRAIN=${TRAIN:-python3 -m examples.recipes.train}

for _ in $(seq 20); do
    $TRAIN "$RUN" "$FAR" "$@"
    code=$?
    [ "$code" -eq 0 ] && break
    echo "the training ended with $code, and starts again"
done
# The agent goes on with the copies to FAR after the training's end; this waits for them.
deepfreeze agent --drain --deadline 1200
exit "$code"
