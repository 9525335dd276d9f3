"""Byte-level BPE: pieces as bytes and as readable text."""

# the character that stands for each byte in byte-level BPE: printable Latin-1 itself, the rest from U+0100 on
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTES = {chr(b): b for b in _PRINTABLE} | {chr(0x100 + i): b for i, b in enumerate(_OTHERS)}


def spell_byte_level(piece: str) -> bytes:
    """The bytes of a piece.

    >>> spell_byte_level("ĠschÃ¶n").decode()
    ' schön'
    """
    known = all(character in _BYTES for character in piece)  # otherwise an added token, which is spelt literally
    return bytes(_BYTES[character] for character in piece) if known else piece.encode()


def show_byte_level(piece: str) -> str:
    """A byte-level piece with readable letters; the space stays `Ġ`, and parts of characters are not changed.

    >>> show_byte_level("ĠschÃ¶n"), show_byte_level("Ã")
    ('Ġschön', 'Ã')
    """
    text = spell_byte_level(piece).decode(errors="replace")
    return text.replace(" ", "Ġ") if text.isprintable() and "\ufffd" not in text else piece
