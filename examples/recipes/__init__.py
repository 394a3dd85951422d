"""Jobs on a workstation, under Slurm, in Kubernetes and on a laptop: docs/recipes.md."""
