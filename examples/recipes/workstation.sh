#!/bin/bash
# A training that starts again until it is done, however it ends: on a machine whose kernel may kill
# it for want of memory, or whose owner does. RUN is on the fast disk, FAR on another one.
set -u
RUN=${RUN:-runs/digits}
FAR=${FAR:?name a directory on another disk}
TRAIN=${TRAIN:-python3 -m examples.recipes.train}

for _ in $(seq 20); do
    $TRAIN "$RUN" "$FAR" "$@"
    code=$?
    [ "$code" -eq 0 ] && break
    [ "$code" -eq 75 ] && break # it was told to end
    echo "the training ended with $code, and starts again"
    sleep "${PAUSE:-5}"
done
# The agent goes on with the copies to FAR after the training's end; this waits for them.
deepfreeze agent --drain --deadline 1200 || echo "not all checkpoints are in $FAR yet"
exit "$code"
