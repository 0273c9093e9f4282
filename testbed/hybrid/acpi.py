# SPDX-License-Identifier: GPL-2.0-or-later
"""The ACPI table by which Linux finds what QEMU's own tables lack.

Performance levels (CPPC), on AMD's machines: each CPU that there is gets a `_CPC`, most of which are
registers that the plugin answers (amd.c), and general purpose event 7 says that their highest performance
has changed. Idle states, where a machine has `cpuidle`: each CPU gets a `_CST` (idle.c).
"""
import struct

CAP1, ENABLE, REQ = 0xC00102B0, 0xC00102B1, 0xC00102B3
MPERF, APERF = 0xE7, 0xE8
HIGHEST_PERF_CHANGED = 0x85
SYSTEM_IO, FIXED_HARDWARE = 1, 0x7F # where a register is
IDLE_PORT = 0x5C0 # as model.h has it


def length(body):
    """An AML PkgLength, which counts itself, and what it is the length of."""
    for size in range(1, 5):
        n = len(body) + size
        if size == 1 and n < 1 << 6:
            return bytes([n]) + body
        if size > 1 and n < 1 << (8 * size - 4):
            rest = [n >> (8 * i + 4) & 0xFF for i in range(size - 1)]
            return bytes([(size - 1) << 6 | n & 0xF, *rest]) + body
    raise ValueError(f"{len(body)} bytes of AML")


def integer(n):
    for prefix, code in ((0x0A, "<B"), (0x0B, "<H"), (0x0C, "<I")):
        if n < 1 << 8 * struct.calcsize(code):
            return bytes([prefix]) + struct.pack(code, n)
    raise ValueError(n)


def cpu(apic_id):
    """The device that QEMU has for an APIC id, as a name in AML."""
    return b"\\\x2f\x03_SB_CPUSC%03X" % apic_id


def package(elements):
    return b"\x12" + length(bytes([len(elements)]) + b"".join(elements))


def register(address, width=0, offset=0, space=FIXED_HARDWARE, size=4):
    """A field of an MSR, or a port, in a buffer; with no width, none."""
    if not width:
        space = size = 0
    resource = struct.pack("<BHBBBBQ", 0x82, 12, space, width, offset, size, address)
    resource += b"\x79\x00"
    return b"\x11" + length(integer(len(resource)) + resource)


def cpc(lowest_mhz, nominal_mhz):
    none = register(0)
    return b"\x08_CPC" + package([
        integer(23), integer(3),
        register(CAP1, 8, 24), register(CAP1, 8, 16), register(CAP1, 8, 8), register(CAP1, 8),
        none,                                                        # guaranteed
        register(REQ, 8, 16), register(REQ, 8, 8), register(REQ, 8), # desired, least and most
        none, none, none,                    # tolerance, its window, when counters wrap
        register(MPERF, 64), register(APERF, 64),
        none, register(ENABLE, 1), none, none, register(REQ, 8, 24), # energy preference
        none, integer(lowest_mhz), integer(nominal_mhz),
    ])


def cst(states):
    """Of [microseconds to leave it, watts]: a port sends the CPU there. Of what ACPI knows, C1 and several of C2."""
    entries = []
    for k, (us, watts) in enumerate(states):
        port = register(IDLE_PORT + k, 8, space=SYSTEM_IO, size=1)
        entries.append(package([port, integer(min(k, 1) + 1), integer(round(us)), integer(round(watts * 1000))]))
    return b"\x08_CST" + package([integer(len(states)), *entries])


def table(cpus, clocks):
    """An SSDT: for each APIC id its idle states, or none, and with `clocks` lowest and nominal clock in MHz."""
    body = b""
    for apic_id, states in cpus.items():
        objects = (cst(states) if states else b"") + (cpc(*clocks[apic_id]) if clocks else b"")
        body += b"\x10" + length(cpu(apic_id) + objects)
    if clocks:
        changed = b"".join(b"\x86" + cpu(i) + integer(HIGHEST_PERF_CHANGED) for i in cpus)
        method = b"\x14" + length(b"_E07\x00" + changed)
        body += b"\x10" + length(b"\\_GPE" + method)
    header = struct.pack("<4sIBB6s8sI4sI", b"SSDT", 36 + len(body), 2, 0, b"SCXHET", b"HYBRID  ", 1,
                         b"SCXH", 1)
    sum_ = -sum(header + body) & 0xFF
    return header[:9] + bytes([sum_]) + header[10:] + body
