"""Our SHA-256 and its HMAC, against the standards' vectors and Python's own."""

from __future__ import annotations

import ctypes
import hashlib
import hmac
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "agent" / "native"
# FIPS 180-2, appendix B, and RFC 4231, sections 4.2, 4.3, 4.7 and 4.8
HASHES = {
    b"abc": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq": (
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
    ),
    b"a" * 10**6: "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
}
PROOFS = {
    (b"\x0b" * 20, b"Hi There"): (
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
    ),
    (b"Jefe", b"what do ya want for nothing?"): (
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    ),
    (b"\xaa" * 131, b"Test Using Larger Than Block-Size Key - Hash Key First"): (
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
    ),
}
Hash = Callable[[bytes], bytes]
Proof = Callable[[bytes, bytes], bytes]


@pytest.fixture(scope="module")
def native(tmp_path_factory) -> tuple[Hash, Proof]:
    built = tmp_path_factory.mktemp("sha256") / "sha256.so"
    words = ["cc", "-shared", "-fPIC", "-O2", "-D_GNU_SOURCE", "-Wall", "-Werror"]
    source = NATIVE / "load" / "sha256.c"
    subprocess.run([*words, f"-I{NATIVE}", source, "-o", built], check=True)
    library = ctypes.CDLL(str(built))
    size = ctypes.c_size_t

    def sha256(data: bytes) -> bytes:
        ret = ctypes.create_string_buffer(32)
        library.sha256(data, size(len(data)), ret)
        return ret.raw

    def hmac_sha256(key: bytes, data: bytes) -> bytes:
        ret = ctypes.create_string_buffer(32)
        library.hmac_sha256(key, size(len(key)), data, size(len(data)), ret)
        return ret.raw

    return sha256, hmac_sha256


def test_the_standards_vectors(native):
    sha256, hmac_sha256 = native
    assert {data: sha256(data).hex() for data in HASHES} == HASHES
    assert {words: hmac_sha256(*words).hex() for words in PROOFS} == PROOFS


def test_every_length_as_python_has_it(native):
    sha256, hmac_sha256 = native
    seeded = random.Random(1)
    for size in range(300):
        data, key = seeded.randbytes(size), seeded.randbytes(seeded.randrange(200))
        assert sha256(data) == hashlib.sha256(data).digest(), size
        assert hmac_sha256(key, data) == hmac.digest(key, data, "sha256"), size
