"""One adapter for each framework. No module here imports a framework before the program has."""
