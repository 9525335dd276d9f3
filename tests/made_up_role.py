"""A fourth head role, as someone would add it: one class, and one line that tests put into `HEAD_SCORES`."""

from typing import ClassVar

from hf_nmt_interp.analysis.roles import HeadScore, Row, View


class LastKey(HeadScore):
    """Share of the tokens whose largest weight is at the last key, and how often that was."""

    column_types: ClassVar = {"last_share": float, "last_hits": int}
    fact_types: ClassVar = {"last": list[int], "sentence_has_last": bool}

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def facts(self, view: View) -> dict[str, list]:
        last = view.weights.argmax(-1) == len(view.keys) - 1  # [H, Q]
        return {"last": last.astype(int).tolist(), "sentence_has_last": last.any(-1).tolist()}

    def add_facts(self, facts: dict[str, list]) -> None:
        self.seen = self.seen or [[] for _ in facts["last"]]
        for seen, last in zip(self.seen, facts["last"], strict=True):
            seen.extend(last)

    def columns(self) -> dict[str, list]:
        hits = [sum(seen) for seen in self.seen]
        shares = [n / len(seen) for n, seen in zip(hits, self.seen, strict=True)]
        return {"last_share": shares, "last_hits": hits} if hits else {}

    @staticmethod
    def roles(row: Row) -> list[str]:
        return [f"{row['last_hits']} times"] if row.get("last_share") is not None else []
