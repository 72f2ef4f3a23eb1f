"""How blocks and manifests are written: compressed, and encrypted if the repository has a key.

The cryptography is that of the library `cryptography`: scrypt (RFC 7914) makes a key of the passphrase, which opens the
random key of the repository; HKDF (RFC 5869) derives one key for contents and one for addresses from that; contents
are sealed by AES-256-GCM with a random nonce, bound to their names, so that none can be put in the place of another.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import zlib
from base64 import b64decode, b64encode
from typing import Final

import msgspec

from reverie.errors import Rejected, StoreUnusable

# Shorter passphrases are refused when a repository is made: whoever copies it can try them without any limit.
MIN_PASSPHRASE_BYTES: Final = 12
# 128 MiB and about 0.4 s for each try: the cost that RFC 7914's author suggests for files.
SCRYPT_COST: Final = 2**17
_SCRYPT_BLOCK: Final = 8
# A manipulated repository must not make us allocate more than 1 GiB.
_MAX_COST: Final = 2**20
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
# Higher levels take twice the time and save a few percent.
_COMPRESSION: Final = 1


class KeySlot(msgspec.Struct, frozen=True, kw_only=True):
    """The key of a repository, sealed by a passphrase. `salt` and `sealed_key` are base64."""

    kdf: str = "scrypt"
    cost: int
    salt: str
    sealed_key: str


class Sealing:
    """Makes the address of a content, and the bytes that are written for it: compressed, and addressed by SHA-256.

    It detects damage, but not changes by somebody who can write the files.
    """

    def address(self, content: bytes) -> str:
        """Return the address of a content: 64 hexadecimal digits, the same for the same content."""
        return hashlib.sha256(content).hexdigest()

    def seal(self, name: str, content: bytes) -> bytes:
        """Return what is written under a name."""
        del name
        return zlib.compress(content, _COMPRESSION)

    def unseal(self, name: str, sealed: bytes, *, max_bytes: int) -> bytes:
        """Return the content that was sealed under a name. Raises `StoreUnusable` for anything else."""
        return _decompress(name, sealed, max_bytes)


class EncryptedSealing(Sealing):
    """Compresses and encrypts. Addresses are keyed hashes, which do not tell whether a known text is in a backup."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher = AESGCM(_derive(key, b"reverie backup contents"))
        self._address_key = _derive(key, b"reverie backup addresses")

    def address(self, content: bytes) -> str:
        """Return the HMAC-SHA-256 of a content."""
        return hmac.digest(self._address_key, content, "sha256").hex()

    def seal(self, name: str, content: bytes) -> bytes:
        """Return the nonce and the sealed, compressed content."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, zlib.compress(content, _COMPRESSION), name.encode())

    def unseal(self, name: str, sealed: bytes, *, max_bytes: int) -> bytes:
        """Return the content. Raises `StoreUnusable` if a single bit was changed, or it was sealed under another
        name."""
        from cryptography.exceptions import InvalidTag

        try:
            packed = self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], name.encode())
        except (InvalidTag, ValueError) as error:  # ValueError: too short for a nonce
            raise StoreUnusable(f"{name} of the backup was changed or is damaged: it does not decrypt") from error
        return _decompress(name, packed, max_bytes)


def new_key_slot(secret: bytes) -> tuple[KeySlot, EncryptedSealing]:
    """Return a new random key, sealed by a passphrase or the content of a key file.

    Raises `Rejected` for a secret that is too short.
    """
    if len(secret) < MIN_PASSPHRASE_BYTES:
        raise Rejected(
            f"the passphrase has {len(secret)} bytes; {MIN_PASSPHRASE_BYTES} or more are needed, since whoever copies"
            " the backup can try passphrases without limit",
            field="passphrase",
        )
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    key, salt, nonce = os.urandom(_KEY_BYTES), os.urandom(16), os.urandom(_NONCE_BYTES)
    sealed = nonce + AESGCM(_stretch(secret, salt, SCRYPT_COST)).encrypt(nonce, key, salt)
    slot = KeySlot(cost=SCRYPT_COST, salt=b64encode(salt).decode(), sealed_key=b64encode(sealed).decode())
    return slot, EncryptedSealing(key)


def open_key_slot(slot: KeySlot, secret: bytes) -> EncryptedSealing:
    """Return the sealing of a repository. Raises `Rejected` for a wrong passphrase, `StoreUnusable` for damage."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if slot.kdf != "scrypt" or not 2 <= slot.cost <= _MAX_COST or slot.cost & (slot.cost - 1):
        raise StoreUnusable(
            f"the backup's key was made by {slot.kdf} with cost {slot.cost}, which this version does not know:"
            " upgrade Reverie, or the file is damaged"
        )
    try:
        salt, sealed = b64decode(slot.salt, validate=True), b64decode(slot.sealed_key, validate=True)
        key = AESGCM(_stretch(secret, salt, slot.cost)).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], salt)
    except InvalidTag:
        raise Rejected("the passphrase or key file is not that of this backup", field="passphrase") from None
    except ValueError as error:  # no base64, or too short
        raise StoreUnusable(f"the backup's key is damaged ({error})") from error
    return EncryptedSealing(key)


def _stretch(secret: bytes, salt: bytes, cost: int) -> bytes:
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return Scrypt(salt=salt, length=_KEY_BYTES, n=cost, r=_SCRYPT_BLOCK, p=1).derive(secret)


def _derive(key: bytes, purpose: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), length=_KEY_BYTES, salt=None, info=purpose).derive(key)


def _decompress(name: str, packed: bytes, max_bytes: int) -> bytes:
    """Return the decompressed content, without ever allocating much more than `max_bytes`."""
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(packed, max_bytes + 1)
    except zlib.error as error:
        raise StoreUnusable(f"{name} of the backup is damaged ({error})") from error
    if len(content) > max_bytes or not unpacking.eof:
        raise StoreUnusable(f"{name} of the backup is damaged: it is cut off, or larger than it can be")
    return content
