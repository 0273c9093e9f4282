# testbed/layout.py - what testbed/calibrate and its kin know of a machine.
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def settings(machine):
    """What QEMU's plugin reads of it; ends the program if there is no such machine."""
    with tempfile.NamedTemporaryFile("r") as out:
        command = [HERE / "machine", machine, out.name]
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
            sys.exit(1) # it has said why
        return dict(line.rstrip("\n").split(" = ", 1) for line in out)


def toml(value):
    """A value as a machine's file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


class Layout:
    """Its core types' names, for each CPU its type and last-level cache in KiB, how
    many threads the first core has, whether it has energy, and for each core type the
    address of its power sensor, or None."""

    def __init__(self, machine):
        m = settings(machine)
        self.names = [m[f"type.{i}.name"] for i in range(int(m["types"]))]
        self.types, self.llcs = [], []
        for i in range(int(m["clusters"])):
            cpus = int(m[f"cluster.{i}.cpus"])
            self.types += [int(m[f"cluster.{i}.type"])] * cpus
            self.llcs += [int(m[f"llc.{m[f'cluster.{i}.llc']}.kib"])] * cpus
        self.threads = int(m["cluster.0.threads"])
        self.energy = m["energy"] == "1"
        sensors = range(int(m.get("energy.sensors", 0)))
        address = {int(m[f"energy.sensor.{i}.of"]): int(m[f"energy.sensor.{i}.address"]) for i in sensors}
        self.sensors = [address.get(i) for i in range(len(self.names))]
