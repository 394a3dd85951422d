#!/bin/bash
#SBATCH --job-name=digits
#SBATCH --nodes=1
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@300
# Five minutes before the limit Slurm signals this script, which passes it on. The agent is a step
# of its own: an agent that the training has started would die with it. LOCAL is on a disk of the
# node, which the site may wipe after the job; FAR is a file system that all nodes see.
set -u
LOCAL=${LOCAL:?name a directory on a disk of the node}
FAR=${FAR:-$HOME/runs/digits}
TRAIN=${TRAIN:-python3 -m examples.recipes.train}
AGENT=${AGENT:-$(mktemp -d)}

srun --overlap --ntasks-per-node=1 deepfreeze agent --directory "$AGENT" &
agent=$!
# shellcheck disable=SC2086  # TRAIN is several words
srun --overlap $TRAIN "$LOCAL" "$FAR" --agent "$AGENT" "$@" &
training=$!
trap 'kill -USR1 "$training"' USR1

wait "$training"
code=$?
while kill -0 "$training" 2>/dev/null; do # a signal interrupts wait
    wait "$training"
    code=$?
done
# Checkpoints that lie on LOCAL only are brought to FAR before the node is given back.
deepfreeze agent --directory "$AGENT" --drain --deadline 240
wait "$agent"
if [ "$code" -ne 0 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
