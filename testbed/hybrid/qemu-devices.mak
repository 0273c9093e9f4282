# The devices of the QEMU that testbed/hybrid/qemu builds: a q35 machine (it
# brings the serial port, ACPI and PCI) and virtio's console channel.
CONFIG_Q35=y
CONFIG_VIRTIO_PCI=y
CONFIG_VIRTIO_SERIAL=y
