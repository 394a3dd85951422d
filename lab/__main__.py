"""`python -m lab` in the source tree; `deepfreeze study` comes here."""

import sys

try:
    from lab.command import main
except ModuleNotFoundError as missing:
    print(
        f"deepfreeze study: {missing.name} is not installed in this environment; "
        "`make setup` in the source tree makes one that has all that the study needs",
        file=sys.stderr,
    )
    sys.exit(2)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
