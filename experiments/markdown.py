# SPDX-License-Identifier: GPL-2.0-only
"""What reports write."""


def table(header, rows):
    """Numbers to the right of names."""
    lines = ["| " + " | ".join(header) + " |", "| :-- |" + " --: |" * (len(header) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])
