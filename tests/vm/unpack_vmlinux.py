"""unpack_vmlinux.py IMAGE FOLDER - write FOLDER/vmlinux, which QEMU boots.

Of x86, the ELF kernel out of a bzImage: without a BIOS, and without decompressing in
the guest, which takes a second of emulation. Of arm64, where the image is the kernel
itself, also its types (BTF) as FOLDER/btf: nothing tells where they are in it.
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
# Documentation/arch/arm64/booting.rst
ARM64_MAGIC = 0x38
# Documentation/bpf/btf.rst: magic, version, flags, length of the header; then offset
# and length of types and of strings, which follow each other.
BTF_HEADER = struct.Struct("<HBBIIIII")
BTF_BEGIN = struct.pack("<HBBI", 0xEB9F, 1, 0, BTF_HEADER.size)
VMLINUX_BTF_BYTES = 1 << 20  # other images of a kernel may have BTF in them, too


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


def types(image: bytes) -> bytes:
    found = image.find(BTF_BEGIN)
    while found >= 0:
        *_, type_bytes, strings, string_bytes = BTF_HEADER.unpack_from(image, found)
        length = BTF_HEADER.size + strings + string_bytes
        if strings == type_bytes > VMLINUX_BTF_BYTES:
            return image[found : found + length]
        found = image.find(BTF_BEGIN, found + 1)
    sys.exit("unpack_vmlinux: no BTF inside")


def main() -> None:
    image, folder = map(Path, sys.argv[1:])
    kernel = image.read_bytes()
    if kernel.startswith(b"\x1f\x8b"):
        kernel = gzip.decompress(kernel)
    if kernel[ARM64_MAGIC : ARM64_MAGIC + 4] == b"ARM\x64":
        (folder / "btf").write_bytes(types(kernel))
    else:
        kernel = decompress(payload(kernel))
        if not kernel.startswith(b"\x7fELF"):
            sys.exit("unpack_vmlinux: no ELF kernel inside")
    (folder / "vmlinux").write_bytes(kernel)


if __name__ == "__main__":
    main()
