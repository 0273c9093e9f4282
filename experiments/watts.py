# SPDX-License-Identifier: GPL-2.0-only
"""What the energy of a testbed's machine comes to, outside of it."""

import pathlib
import tomllib

MACHINES = pathlib.Path(__file__).resolve().parent.parent / "testbed/machines"
DIVISION = 20  # cycles that the divider is busy with one, about


def machine(name):
    """Its settings, with those of the machine that it is like."""
    with open(MACHINES / f"{name}.toml", "rb") as file:
        own = tomllib.load(file)
    return {**machine(own["like"]), **own} if "like" in own else own


def of_instructions(row, energy):
    """nJ of a core for what a table's row counted, without that of cycles and time."""
    nj, count = energy["nj"], lambda name: float(row.get(name) or 0)
    return (
        count("instructions") * nj["insn"]
        + count("loads") * nj["load"]
        + count("stores") * nj["store"]
        + count("branches") * nj["branch"]
        + count("branch-misses") * nj["branch_miss"]
        + count("fp-ops") * nj["fp"]
        + count("divider") / DIVISION * nj["div"]
        + count("l1-misses") * nj["l2"]
        + count("llc-references") * nj["llc"]
    )


def by_kind(rows, of):
    """The machine's core types by the table's names of them, which go by their order."""
    return dict(zip(dict.fromkeys(row["core-type"] for row in rows), of["core_type"].values()))
