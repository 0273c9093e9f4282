# SPDX-License-Identifier: GPL-2.0-or-later
"""Reading a machine's settings, and saying in words what is wrong with them."""
import math

MAX_POINTS = 16 # of volts by clock, and idle states: see model.h
OFF = ("energy", "resctrl", "hfi", "latency", "idle_exit", "cpuidle", "pipeline", "smt") # what a line turns off
MAX_WATTS = 4095 # what the registers hold
MOST = 1e9 # of whatever: no core, cache or memory comes near


class Wrong(Exception):
    """What is wrong with a machine, in words."""


def take(table, where, key, kind=(int, float), default=None, least=0, most=MOST):
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
    if kind not in (str, list, dict) and value < least:
        raise Wrong(f"{where}: `{key}` must be at least {least}, not {value}")
    if kind not in (str, list, dict) and value > most:
        raise Wrong(f"{where}: `{key}` must be at most {most:.15g}, not {value}")
    return value


def tables(table, where, key, default=None):
    """A list or a table of tables, which is left in its place."""
    value = table.get(key, default)
    kind = dict if key in ("core_type", "llc") else list
    if key in table and not isinstance(value, kind) or value is None:
        take(table, where, key, kind) # says what is wrong
    for name, of in value.items() if kind == dict else enumerate(value):
        if not isinstance(of, dict):
            raise Wrong(f"{where}: `{key}` {name} is no table of settings, but {of!r}")
    return value


def clocks(table, where, key):
    """MHz by how many cores are busy, 1 and more: the more, the lower."""
    value = take(table, where, key, list)
    if not value:
        raise Wrong(f"{where}: `{key}` needs at least one clock")
    for mhz in value:
        if isinstance(mhz, bool) or not isinstance(mhz, (int, float)) or not 1 <= mhz <= 10000:
            raise Wrong(f"{where}: `{key}` has clocks from 1 to 10000 MHz, not {mhz!r}")
    if value != sorted(value, reverse=True):
        raise Wrong(f"{where}: `{key}` rises with the number of busy cores: {value}")
    return value


def done(table, where):
    if table:
        raise Wrong(f"{where}: unknown setting `{next(iter(table))}`")


def cache(table, where):
    """KiB and ways of a cache; none at all is 0 KiB."""
    kib, ways = take(table, where, "kib", int, least=1, most=1 << 20), take(table, where, "ways", int, least=1)
    if kib * 1024 % (64 * ways):
        raise Wrong(f"{where}: `kib` and `ways`: {kib} KiB are not a whole number of sets of {ways} lines")
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


def points(table, where, key, names, positive, most):
    """Numbers in ascending order, each with another: a curve, or idle states; `most` of either."""
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
        if p[0] > most[0] or p[1] > most[1]:
            raise Wrong(f"{here}: {p} must be at most {most[0]:.15g} {names[0]}, {most[1]:.15g} {names[1]}")
    for a, b in zip(value, value[1:]):
        if a[0] >= b[0]:
            raise Wrong(f"{here}: {names[0]} {b[0]} after {a[0]} does not ascend")
    return value


def turn_off(m, name):
    """Takes out what a machine says is "off", whatever it is like: `hfi = "off"`."""
    for key in [key for key in OFF if m.get(key) == "off"]:
        del m[key]
        if key == "smt":
            for c in tables(m, name, "cluster", []):
                if c.pop("threads", 1) == 2 and isinstance(c.get("cpus"), int):
                    c["cpus"] //= 2
            continue
        for t in tables(m, name, "core_type", {}).values():
            t.pop(key, None)
