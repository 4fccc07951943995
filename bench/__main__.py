"""`python -m bench [--only append,fork]`: measure, write the results, print the table."""

from __future__ import annotations

import argparse
import gc
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import report
from bench.figures import Figure, merged
from bench.groups import GROUPS
from bench.machine import describe
from bench.pace import AGAIN_SECONDS, MEASURED_AGAIN, QUICK, QUICK_GROUPS
from bench.progress import say
from bench.timing import seconds
from bench.workshop import Workshop

RESULTS = Path(__file__).parent / "results"


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = _parse(arguments)
    RESULTS.mkdir(exist_ok=True)
    # Beside the results and not in the system's temporary folder, which is often no real disk.
    with tempfile.TemporaryDirectory(prefix="stores-", dir=RESULTS) as folder:
        machine = describe(Path(folder))
        with Workshop(Path(folder)) as workshop:
            measured = [figure for group in chosen for figure in _run(group, workshop, machine)]
    print(report.table(measured, machine))


def _parse(arguments: Sequence[str] | None) -> list[str]:
    names = ", ".join(GROUPS)
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Clew.")
    parser.add_argument("--only", metavar="GROUP,…", help=f"only these groups of: {names}")
    only = parser.parse_args(arguments).only
    if only is None:
        return [name for name in GROUPS if name in QUICK_GROUPS or not QUICK]
    wanted = [name.strip() for name in only.split(",")]
    for name in wanted:
        if name not in GROUPS:
            parser.error(f"there is no group {name!r}; there are: {names}")
    return [name for name in GROUPS if name in wanted]


def _run(group: str, workshop: Workshop, machine: dict[str, object]) -> list[Figure]:
    """Measure one group and keep its figures at once, whatever becomes of the next group.

    A figure next to its bar is measured again, with its group: a new store and another moment
    are part of what makes it uncertain.
    """
    # What earlier groups have loaded would be looked through by each collection of this one.
    gc.collect()
    gc.freeze()
    say(f"== {group}")
    figures: list[Figure] = []
    took = seconds(lambda: figures.extend(GROUPS[group](workshop)))
    for time in range(MEASURED_AGAIN):
        unsure = [figure for figure in figures if figure.verdict == "too noisy to say"]
        if not unsure or took * (time + 1) > AGAIN_SECONDS:
            break
        say(f"== {group} again: {unsure[0].name!r} lies next to its bar")
        figures = merged(figures, GROUPS[group](workshop))
    report.save(RESULTS / ("quick.json" if QUICK else "latest.json"), group, figures, machine)
    return figures


if __name__ == "__main__":
    main()
