"""Literal twin of the Moses manual's description of symmetrisation; e is the target (English), f the source word."""

NEIGHBORING = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def grow_diag_final(e2f: set, f2e: set, en: int, fn: int, final: str) -> set:
    """Points (e, f); `final` is "", "final" or "final-and"."""
    alignment = e2f & f2e

    def e_aligned(e: int) -> bool:
        return any((e, f) in alignment for f in range(fn))

    def f_aligned(f: int) -> bool:
        return any((e, f) in alignment for e in range(en))

    # GROW-DIAG
    while True:
        added = False
        for e in range(en):
            for f in range(fn):
                if (e, f) in alignment:
                    for step_e, step_f in NEIGHBORING:
                        e_new, f_new = e + step_e, f + step_f
                        if (not e_aligned(e_new) or not f_aligned(f_new)) and (e_new, f_new) in e2f | f2e:
                            alignment.add((e_new, f_new))
                            added = True
        if not added:
            break

    for direction in (e2f, f2e) if final else ():
        for e_new in range(en):
            for f_new in range(fn):
                if final == "final":
                    wanted = not e_aligned(e_new) or not f_aligned(f_new)
                else:
                    wanted = not e_aligned(e_new) and not f_aligned(f_new)
                if wanted and (e_new, f_new) in direction:
                    alignment.add((e_new, f_new))
    return alignment
