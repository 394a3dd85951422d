"""`deepfreeze explore`: how a model became what it is, as a page.

`runs` and `steps` describe runs, their forks and their steps; `statistics` has numbers about each
tensor at each step, computed once by `tensor_numbers` and kept by `cache`; `analyses` are results
that other programs have left beside a run. `answers` gives all of it to the page in `page/`, which
`server` serves on loopback and `single_file` writes as one file.
Nothing here writes into a run.
"""
