# SPDX-License-Identifier: GPL-2.0-or-later
"""What a machine may have and most lack: energy, pipelines, latencies, idle states, noise, resctrl, hardware feedback,
AMD's levels."""
from settings import MAX_WATTS, MOST, Wrong, done, points, take

CLASSES = ["insn", "load", "store", "branch", "fp", "mul", "div", "sys"]
UNITS = ["alu", "branch", "mul", "div", "fp", "fdiv", "vector"]
MAX_SENSORS = 8 # of power, as model.h has it
# What `noise` means: standard deviations, as parts of what they disturb. See docs/testbed-model.md.
NOISE = {
    "low": {"counts": 0.0003, "misses": 0.005, "clock": 0.002, "memory": 0.01},
    "high": {"counts": 0.003, "misses": 0.03, "clock": 0.015, "memory": 0.05},
}
MAX_RMIDS, MAX_CLOS = 1024, 128 # that Intel's registers have room for
MAX_STATES = 7 # that Linux takes from ACPI
MAX_LATENCY_US = 10000 # so that Linux' governors choose a state at all
# What amd-pstate takes for the highest level of a performance core, whatever the ranking says.
AMD_HIGHEST = 196


def type_energy(t, where, put, scale, fastest):
    e, where = take(t, where, "energy", dict), f"{where}, energy"
    put("leakage_w", take(e, where, "leakage_w", most=MAX_WATTS))
    put("cycle_nj", scale.energy(take(e, where, "cycle_nj")))
    nj = take(e, where, "nj", dict)
    for k in [*CLASSES, "branch_miss", "l2", "llc"]:
        put(k, scale.energy(take(nj, f"{where}, nj", k)))
    done(nj, f"{where}, nj")
    volts = points(e, where, "volts", ("MHz", "volts"), True, (10000, 5))
    for (_, a), (mhz, b) in zip(volts, volts[1:]):
        if b < a:
            raise Wrong(f"{where}: `volts` fall from {a} to {b} at {mhz} MHz")
    if volts[-1][0] < fastest:
        raise Wrong(f"{where}: `volts` end at {volts[-1][0]} MHz, below the type's `mhz`: {fastest}")
    put("volts", len(volts))
    for k, (mhz, volt) in enumerate(volts):
        put(f"volts.{k}.mhz", scale.speed(mhz))
        put(f"volts.{k}.volt", volt)
    idle = points(e, where, "idle", ("microseconds", "watts"), False, (MOST, MAX_WATTS))
    if idle[0][0]:
        raise Wrong(f"{where}: `idle` must begin at 0 microseconds, not {idle[0][0]}")
    for (_, a), (_, b) in zip(idle, idle[1:]):
        if b > a:
            raise Wrong(f"{where}: `idle`: a deeper state takes {b} W, more than {a} W")
    put("idle", len(idle))
    for k, (after, watts) in enumerate(idle):
        put(f"idle.{k}.after_us", after)
        put(f"idle.{k}.watts", watts)
    done(e, where)


def heat(e, out):
    """How hot watts make the package, how soon, and from what to what."""
    keys = ("thermal_r", "thermal_s", "ambient_c", "max_c")
    values = (0, 0, 0, 0)
    if any(key in e for key in keys):
        r, s = (take(e, "energy", key, least=1e-3) for key in keys[:2])
        ambient, most = take(e, "energy", "ambient_c", default=25), take(e, "energy", "max_c", int, 100)
        if most > 127: # what the register holds
            raise Wrong(f"energy: `max_c` is at most 127, not {most}")
        if ambient >= most:
            raise Wrong(f"energy: `ambient_c` is not below `max_c`: {ambient} and {most} degrees")
        values = (r, s, ambient, most)
    out += [(f"energy.{key}", value) for key, value in zip(keys, values)]


def sensors(e, types, out):
    """Power sensors: at which address of the bus, of which core type or of memory."""
    of = [*types, "memory"]
    table, where = take(e, "energy", "sensors", dict, {}), "energy, sensors"
    if len(table) > MAX_SENSORS:
        raise Wrong(f"{where}: at most {MAX_SENSORS}, not {len(table)}")
    out.append(("energy.sensors", len(table)))
    taken = {}
    for i, what in enumerate(list(table)):
        address = take(table, where, what, int)
        if what not in of:
            raise Wrong(f"{where}: `{what}` is no core type, nor memory")
        if not 0x08 <= address <= 0x77 or 0x50 <= address <= 0x57:
            raise Wrong(f"{where}: `{what}`: an address is 0x08 to 0x77, but for 0x50 to 0x57, not {address:#x}")
        if address in taken:
            raise Wrong(f"{where}: `{what}` and `{taken[address]}` have one address")
        taken[address] = what
        out += [(f"energy.sensor.{i}.address", address), (f"energy.sensor.{i}.of", of.index(what))]


def energy(m, name, out, scale):
    """What the machine takes beside its cores; whether it has energy at all."""
    out.append(("energy", int("energy" in m)))
    if "energy" not in m:
        return False
    e = take(m, name, "energy", dict)
    uncore, idle, dram = (take(e, "energy", key, most=MAX_WATTS) for key in ("uncore_w", "idle_w", "dram_w"))
    if idle > uncore:
        raise Wrong(f"energy: `idle_w` is more than `uncore_w`, what is taken while cores run: {idle} W and {uncore} W")
    out += [("energy.uncore_w", uncore), ("energy.idle_w", idle), ("energy.dram_w", dram)]
    out.append(("energy.dram_nj", scale.energy(take(e, "energy", "dram_nj"))))
    pl1, pl2 = (take(e, "energy", key, default=0, most=MAX_WATTS) for key in ("pl1_w", "pl2_w"))
    if pl2 and pl2 < pl1:
        raise Wrong(f"energy: `pl2_w` is less than `pl1_w`: {pl2} W and {pl1} W")
    out += [("energy.pl1_w", pl1), ("energy.pl2_w", pl2)]
    out.append(("energy.pl1_s", take(e, "energy", "pl1_s", default=28, least=0.001)))
    heat(e, out)
    sensors(e, m.get("core_type", {}), out)
    done(e, "energy")
    return True


def pipeline(t, where, put):
    """How a core prices instructions by those around them: see hybrid/pipeline.c."""
    p, where = take(t, where, "pipeline", dict), f"{where}, pipeline"
    for key, least, most in (("width", 1, 64), ("window", 0, 1 << 16), ("fetch", 1, 1024), ("hide", 0, 1)):
        put(key, take(p, where, key, least=least, most=most))
    # Fewer than one: what is not pipelined.
    for key, kinds, least in (("ports", ["load", "store", *UNITS], 0.01), ("latency", ["load", *UNITS], 0)):
        table = take(p, where, key, dict)
        for k in kinds:
            put(f"{key}.{k}", take(table, f"{where}, {key}", k, least=least))
        done(table, f"{where}, {key}")
    done(p, where)


def latency(m, name, out, scale, smt):
    """What a line costs that another CPU wrote; whether it costs anything at all."""
    out.append(("latency", int("latency" in m)))
    if "latency" not in m:
        return
    l = take(m, name, "latency", dict)
    if smt and "sibling_ns" not in l:
        raise Wrong("latency lacks `sibling_ns`: there are cores of 2 threads")
    out.append(("latency.sibling_ns", scale.duration(take(l, "latency", "sibling_ns", default=0))))
    for key in ("cluster_ns", "llc_ns", "other_ns"):
        out.append((f"latency.{key}", scale.duration(take(l, "latency", key))))
    done(l, "latency")


def noise(m, name, out):
    level = take(m, name, "noise", str, "off")
    if level != "off" and level not in NOISE:
        raise Wrong(f"`noise` is off, low or high, not {level}")
    out.append(("noise", int(level != "off")))
    out += [(f"noise.{key}", sigma) for key, sigma in NOISE.get(level, {}).items()]


def idle_exit(t, where, put):
    """How long leaving idle states takes, in the guest's time like the sleep itself."""
    states = []
    if "idle_exit" in t:
        states = points(t, where, "idle_exit", ("microseconds", "microseconds"), False, (MOST, MOST))
    for (_, a), (_, b) in zip(states, states[1:]):
        if b < a:
            raise Wrong(f"{where}: `idle_exit`: a deeper state is left in {b} microseconds, sooner than in {a}")
    put("idle_exit", len(states))
    for k, (after, us) in enumerate(states):
        put(f"idle_exit.{k}.after_us", after)
        put(f"idle_exit.{k}.exit_us", us)


def cpuidle(t, where, put, energetic):
    """Idle states from which the guest chooses; how long it takes to leave each, in microseconds."""
    states = []
    if "cpuidle" in t:
        states = points(t, where, "cpuidle", ("microseconds", "watts"), False, (MAX_LATENCY_US, MAX_WATTS))
        if not energetic:
            raise Wrong(f"{where}: `cpuidle` needs `[energy]`, which the machine lacks")
        if "idle_exit" in t:
            raise Wrong(f"{where}: `cpuidle` and `idle_exit` do not go together: each says what leaving a state takes")
        if len(states) > MAX_STATES:
            raise Wrong(f"{where}: `cpuidle` has at most {MAX_STATES} states, not {len(states)}")
    for (_, a), (us, b) in zip(states, states[1:]):
        if b > a:
            raise Wrong(f"{where}: `cpuidle`: the state that is left in {us} microseconds takes {b} W, more than {a} W")
    put("cpuidle", len(states))
    for k, (us, watts) in enumerate(states):
        put(f"cpuidle.{k}.exit_us", us)
        put(f"cpuidle.{k}.watts", watts)
    return states


def resctrl(m, name, out):
    """How many RMIDs and classes of service its last-level caches know; 0: they know none."""
    if "resctrl" not in m:
        out += [("resctrl.rmids", 0), ("resctrl.clos", 0)]
        return False
    r = take(m, name, "resctrl", dict)
    for key, most in (("rmids", MAX_RMIDS), ("clos", MAX_CLOS)):
        out.append((f"resctrl.{key}", take(r, "resctrl", key, int, least=1, most=most)))
    done(r, "resctrl")
    return True


def hfi(m, name, out, energetic):
    """Hardware feedback: what each CPU can do at present, in a table."""
    out.append(("hfi", int("hfi" in m)))
    if "hfi" not in m:
        return
    h = take(m, name, "hfi", dict)
    out.append(("hfi.interval_ms", take(h, "hfi", "interval_ms", default=100, least=1)))
    out.append(("hfi.step", take(h, "hfi", "step", int, 4, 1, 255)))
    done(h, "hfi")
    if not energetic:
        raise Wrong("hfi: efficiency needs `[energy]`, which the machine lacks")


def amd_levels(t, where, put, kind, cores, base, fastest):
    """CPPC's levels: a ranking of cores, from which amd-pstate learns which ones to prefer."""
    ranking = take(t, where, "ranking", list)
    if not ranking or any(not isinstance(r, int) or isinstance(r, bool) or not 1 <= r <= 255 for r in ranking):
        raise Wrong(f"{where}: `ranking` is a list of numbers from 1 to 255, not {ranking!r}")
    if len(ranking) not in (1, cores):
        raise Wrong(f"{where}: `ranking` has {len(ranking)} entries for {cores} cores; one is for all")
    if kind == "efficiency" and len(set(ranking)) > 1:
        raise Wrong(f"{where}: `ranking` of efficiency cores is one number: Linux makes their clock of it")
    highest = AMD_HIGHEST if kind == "performance" else ranking[0]
    nominal = max(4, round(highest * base / fastest))
    put("ranking", cores)
    for k in range(cores):
        put(f"ranking.{k}", ranking[k % len(ranking)])
    put("lowest_level", round(nominal * 0.3))
    put("nonlinear_level", round(nominal * 0.55))
    return highest, nominal
