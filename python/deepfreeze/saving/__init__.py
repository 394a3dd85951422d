"""One save: from the live state to a handle of the save in flight."""
