"""A state as the package sees it: the stored tree, and the contracts between its parts."""
