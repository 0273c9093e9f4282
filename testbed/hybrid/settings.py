# SPDX-License-Identifier: GPL-2.0-or-later
"""Reading a machine's settings, and saying in words what is wrong with them."""
import math

MAX_POINTS = 16 # of volts by clock, and idle states: see model.h


class Wrong(Exception):
    """What is wrong with a machine, in words."""


def take(table, where, key, kind=(int, float), default=None, least=0):
    """Removes and returns a setting, so that what is left over is unknown."""
    value = table.pop(key, default)
    if value is None:
        raise Wrong(f"{where} lacks `{key}`")
    if kind is bool:
        if not isinstance(value, bool):
            raise Wrong(f"{where}: `{key}` is true or false, not {value!r}")
        return value
    if isinstance(value, bool) or not isinstance(value, kind):
        raise Wrong(f"{where}: `{key}` cannot be {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise Wrong(f"{where}: `{key}` cannot be {value}")
    if kind != str and kind != list and kind != dict and value < least:
        raise Wrong(f"{where}: `{key}` must be at least {least}, not {value}")
    return value


def done(table, where):
    if table:
        raise Wrong(f"{where}: unknown setting `{next(iter(table))}`")


def cache(table, where):
    """KiB and ways of a cache; none at all is 0 KiB."""
    kib, ways = take(table, where, "kib", int, least=1), take(table, where, "ways", int, least=1)
    if kib * 1024 % (64 * ways):
        raise Wrong(f"{where}: {kib} KiB are not a whole number of sets of {ways} lines")
    return kib, ways


class Scale:
    """By how much time is stretched, and L2 and last-level caches are smaller."""

    def __init__(self, m, name):
        s = take(m, name, "scale", dict)
        self.time = take(s, "scale", "time", least=1)
        self.cache = take(s, "scale", "cache", int, least=1)
        done(s, "scale")

    def speed(self, value):
        return value / self.time

    def duration(self, value):
        return value * self.time

    def energy(self, value):
        """A second has fewer instructions, and is to take as many joules."""
        return value * self.time

    def size(self, kib, ways):
        return max(kib // self.cache, ways), ways


def points(table, where, key, names, positive):
    """Numbers in ascending order, each with another: a curve, or idle states."""
    value = take(table, where, key, list)
    here = f"{where}: `{key}`"
    if not 1 <= len(value) <= MAX_POINTS:
        raise Wrong(f"{here} has 1 to {MAX_POINTS} entries, not {len(value)}")
    for p in value:
        number = lambda x: isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x)
        if not isinstance(p, list) or len(p) != 2 or not all(map(number, p)):
            raise Wrong(f"{here} is a list of [{names[0]}, {names[1]}], not {p!r}")
        if p[0] < 0 or p[1] < 0 or positive and 0 in p:
            raise Wrong(f"{here}: {p} must be {'positive' if positive else 'at least 0'}")
    for a, b in zip(value, value[1:]):
        if a[0] >= b[0]:
            raise Wrong(f"{here}: {names[0]} {b[0]} after {a[0]} does not ascend")
    return value
