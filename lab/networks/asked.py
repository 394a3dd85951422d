"""The networks that checkpoints are of, and why an experiment has not got one of them."""

from collections.abc import Iterator, Sequence

from lab.measure.case import Case, Plan, refusing
from lab.measure.row import Row

PARAMETERS = {
    "mlp": 1_867_786,
    "resnet50": 25_557_032,
    "resnet152": 60_192_808,
    "nt3": 154_922_918,
    "nt3-6k": 15_582_118,
    "nt3-1k": 2_705_318,
    "p1b1": 244_400_085,
    "p1b1-6k": 26_605_650,
    "combo": 13_742_001,
    "uno": 21_275_001,
}
NETWORKS = ("mlp", "resnet50", "resnet152", "nt3", "p1b1", "combo", "uno")  # that are asked for
ABSENT = "absent/"  # how the names of cases begin that stand for what is nobody's line in a table
QUICK = "left out with --quick; a study in full measures it, or says why it does not"
FEWER_GENES = "{smaller} is measured in its place: the same network, with fewer genes"
IN_FORMATS = "its time; sizes and parameters are in `formats`"
BY_BENCH = (
    "; `build/bench-venv/bin/python -m lab.experiments.storage --workload {name}` measures its "
    "saves and restores"
)
OF_THE_STATE = ("cost", "restore")  # experiments that measure the same as lab.experiments.storage
OWN_NETWORK = {
    "determinism": "a small network with all parts of a state is compared after every step",
    "crash": "a small state leaves time for more kills and cuts: where a save ends shows as well",
    "corruption": "a small state leaves time for more damage: whether a load tells shows as well",
    "sdc": "a small network is trained to its end hundreds of times",
    "portability": "NT3 with few genes shows what is read where, whatever the size",
    "tearing": "numbers that tell of which step they are take the place of a network's",
}


def parameters(workload: str) -> Row:
    """Empty for a state that is no network's."""
    return {"parameters": PARAMETERS[workload]} if workload in PARAMETERS else {}


def absent(experiment: str, plan: Plan, cases: Sequence[Case]) -> Iterator[Case]:
    """A row with the reason for each network that none of these cases is of."""
    used = dict.fromkeys(str(case.about.get("workload")) for case in cases)
    for name in NETWORKS:
        if name not in used:
            why = reason(experiment, name, tuple(used), quick=plan.quick)
            about: Row = {"workload": name, **parameters(name)}
            yield Case(experiment, ABSENT + name, 0.0, about, refusing(why))


def reason(experiment: str, name: str, used: Sequence[str], *, quick: bool) -> str:
    if experiment in OWN_NETWORK:
        return OWN_NETWORK[experiment]
    smaller = next((one for one in used if one.startswith(f"{name}-")), "")
    if smaller:
        return FEWER_GENES.format(smaller=smaller)
    if quick:
        return QUICK
    return IN_FORMATS + (BY_BENCH.format(name=name) if experiment in OF_THE_STATE else "")
