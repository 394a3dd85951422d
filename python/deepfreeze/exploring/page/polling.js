// Follows the program while it computes numbers.

// Asks for the progress until nothing more comes: of a run with new numbers the old ones are
// forgotten at once, and drawn anew as soon as nobody would be disturbed.
export async function follow({ progress, runs, forget, tell, isBusy, redraw, pause }) {
  const revisions = new Map(); // by run
  let [isComputing, isStale] = [true, false];
  while (isComputing || isStale) {
    await pause();
    if (isComputing) {
      const found = await progress();
      for (const run of runs) {
        const revision = found.runs[run.id]?.revision ?? 0;
        if (found.computing && revisions.get(run.id) === revision) continue;
        revisions.set(run.id, revision);
        forget(run);
        isStale = true;
      }
      isComputing = found.computing;
      tell(found);
    }
    if (!isStale || isBusy()) continue;
    isStale = false;
    await redraw();
  }
}
