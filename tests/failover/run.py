"""Failover alone: `python tests/failover/run.py [--short] [--part WORDS]`."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from failover.parts import CONTROLS, LONG, PARTS, SHORT
from faults.points import Outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", default="", help="only parts whose name contains this")
    parser.add_argument("--short", action="store_true", help="two rounds, in about a minute")
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    bad = False
    controls = {name: part for name, (part, _) in CONTROLS.items()}
    for name, part in (PARTS | controls).items():
        if asked.part not in name:
            continue
        outcome, begun = Outcome(), time.monotonic()
        part(SHORT if asked.short else LONG, outcome)
        wrong = bool(outcome.failures) != (name in controls)
        bad |= wrong
        print(f"{name}: {outcome.points} rounds, {len(outcome.failures)} failures", flush=True)
        print(*(f"  {note}" for note in outcome.notes), sep="\n")
        for failure in outcome.failures[:20] if wrong else ():
            print(f"  {failure}")
        print(f"  {time.monotonic() - begun:.0f} s", flush=True)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
