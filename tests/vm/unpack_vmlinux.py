"""unpack_vmlinux.py BZIMAGE VMLINUX - take the ELF kernel out of a bzImage.

QEMU boots the ELF directly (PVH): without a BIOS, and without decompressing in
the guest, which takes a second of emulation.
"""

import gzip
import lzma
import struct
import subprocess
import sys
from pathlib import Path

# Documentation/arch/x86/boot.rst: offsets into the boot sector.
SETUP_SECTORS = 0x1F1
MAGIC = 0x202
PAYLOAD = 0x248


def payload(image: bytes) -> bytes:
    if image[MAGIC : MAGIC + 4] != b"HdrS":
        sys.exit("unpack_vmlinux: not a bzImage")
    offset, length = struct.unpack_from("<II", image, PAYLOAD)
    start = ((image[SETUP_SECTORS] or 4) + 1) * 512 + offset
    return image[start : start + length]


def decompress(packed: bytes) -> bytes:
    if packed.startswith(b"\x1f\x8b"):
        return gzip.decompress(packed)
    if packed.startswith(b"\xfd7zXZ\0"):
        # The last four bytes are the kernel's own note of the size.
        return lzma.LZMADecompressor().decompress(packed)
    if packed.startswith(b"\x28\xb5\x2f\xfd"):
        zstd = ["zstd", "-dcq"]
        return subprocess.run(
            zstd, input=packed[:-4], stdout=subprocess.PIPE, check=True
        ).stdout
    sys.exit("unpack_vmlinux: compressed in a way that is not known here")


def main() -> None:
    image, target = sys.argv[1:]
    elf = decompress(payload(Path(image).read_bytes()))
    if not elf.startswith(b"\x7fELF"):
        sys.exit("unpack_vmlinux: no ELF kernel inside")
    Path(target).write_bytes(elf)


if __name__ == "__main__":
    main()
