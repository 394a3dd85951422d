"""Processes that die, stop and meet failing disks; README.md lists the commands."""
