"""`python -m bench [--only append,fork]`: measure, write the results, print the table."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import report
from bench.figures import Figure
from bench.groups import GROUPS
from bench.machine import describe
from bench.progress import say
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
        return list(GROUPS)
    wanted = [name.strip() for name in only.split(",")]
    for name in wanted:
        if name not in GROUPS:
            parser.error(f"there is no group {name!r}; there are: {names}")
    return [name for name in GROUPS if name in wanted]


def _run(group: str, workshop: Workshop, machine: dict[str, object]) -> list[Figure]:
    """Measure one group and keep its figures at once, whatever becomes of the next group."""
    say(f"== {group}")
    figures = list(GROUPS[group](workshop))
    report.save(RESULTS / "latest.json", group, figures, machine)
    return figures


if __name__ == "__main__":
    main()
