"""What each framework adds. Nothing here imports one until the program itself has."""
