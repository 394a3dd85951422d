#!/bin/bash
# A training on a laptop whose external disk is there now and then: with the disk it is a tier,
# without it the training goes on, and the next call brings over those checkpoints that the disk lacks.
set -u
RUN=${RUN:-runs/digits}
DISK=${DISK:?name the directory at which the disk is mounted}
TRAIN=${TRAIN:-python3 -m examples.recipes.train}

if [ -d "$DISK" ]; then
    if [ -e "$RUN/deepfreeze.json" ]; then
        deepfreeze flush "$RUN" "$DISK/digits" || exit
    fi
    $TRAIN "$RUN" "$DISK/digits" "$@"
    code=$?
    # Only then may the disk be taken away.
    deepfreeze agent --drain --deadline 600 || echo "do not take the disk away: it is written to"
    deepfreeze tiers "$RUN" "$DISK/digits"
    exit "$code"
else
    echo "$DISK is not there: checkpoints stay in $RUN alone"
    $TRAIN "$RUN" "$@"
fi
