"""What `attribute`, `contributions` and `heads` do with the lines of a corpus."""

import argparse
from typing import Any

from hf_nmt_interp.cli.arguments import generate_options
from hf_nmt_interp.cli.sharded_run import Job, Texts
from hf_nmt_interp.cli.shards import Row
from hf_nmt_interp.errors import InputError


def sides(lines: list[Texts]) -> tuple[list[str], list[str] | None]:
    """Sources and, if they are given, targets; a side without words is refused."""
    for line in lines:
        for text, side in zip(line, ("source", "target"), strict=False):
            if not text.strip():
                raise InputError(f"the {side} has no words")
    return [line[0] for line in lines], [line[1] for line in lines] if len(lines[0]) > 1 else None


class Translator(Job):
    """A job with the model of the arguments."""

    def __init__(self, args: argparse.Namespace, model: str) -> None:
        from hf_nmt_interp.cli.loading import load

        self.args = args
        self.model, self.tokenizer = load(model, args.device, args.source_lang, args.target_lang)

    def checked(self, lines: list[Texts]) -> tuple[list[str], list[str] | None]:
        """Sides of lines that the model has room for."""
        from hf_nmt_interp.cli.loading import source_too_long

        sources, targets = sides(lines)
        for source in sources:
            if wrong := source_too_long(self.model, self.tokenizer, source):
                raise InputError(f"{wrong}; split it")
        return sources, targets


class Explain(Translator):
    """Explanations of translations: the rows of `attribute`."""

    def __init__(self, args: argparse.Namespace, method: str, settings: dict[str, Any], model: str) -> None:
        from hf_nmt_interp.attribution.api import make_method

        super().__init__(args, model)
        self.method, self.settings = method, settings
        make_method(self.model, method, **settings)  # wrong ones are refused before the work

    def results(self, lines: list[Texts]) -> list[Any]:
        """Results of lines, in one batch."""
        from hf_nmt_interp.attribution.api import attribute

        options = {"batch_size": len(lines), "generate": generate_options(self.args)}
        return attribute(self.model, self.tokenizer, *self.checked(lines), self.method, **options, **self.settings)  # type: ignore[call-overload]

    def rows(self, lines: list[Texts]) -> list[Row]:
        """Tokens, words and arrays."""
        from hf_nmt_interp.report.records import record

        found = self.results(lines)
        shown = [result.to_words() for result in found] if self.args.level == "word" else found
        rows = [record(result) for result in shown]
        for row in rows:
            del row["settings"]  # they are the same for all, and in run.json
        return rows

    @property
    def schema(self) -> Any:
        """Columns of the rows."""
        import pyarrow as pa

        texts, numbers, matrix = pa.list_(pa.string()), pa.list_(pa.float64()), pa.list_(pa.list_(pa.float64()))
        columns = {"line": pa.int64(), "method": pa.string(), "level": pa.string()}
        for side in ("source", "target"):
            columns |= {f"{side}_tokens": texts, f"{side}_words": texts}
            columns |= {f"{side}_word_ids": pa.list_(pa.int64()), f"{side}_special": pa.list_(pa.bool_())}
        columns |= {"source": matrix, "prefix": matrix, "start": numbers, "source_contribution": numbers}
        return pa.schema(columns | {"log_probs": numbers, "conservation_gap": pa.float64()})


class Contribute(Explain):
    """Statistics of explanations: the rows of `contributions`."""

    def rows(self, lines: list[Texts]) -> list[Row]:
        """Numbers of tokens, and each statistic by position."""
        from hf_nmt_interp.analysis.contributions import STATISTICS
        from hf_nmt_interp.report.records import plain

        rows = []
        for result in self.results(lines):
            sizes = {side: len(getattr(result, side)) for side in ("source_tokens", "target_tokens")}
            chosen = {name: f for name, f in STATISTICS.items() if self.args.statistic in (None, name)}
            rows.append(sizes | {name: plain(statistic(result)) for name, statistic in chosen.items()})
        return rows

    @property
    def schema(self) -> Any:
        """Columns of the rows."""
        import pyarrow as pa

        from hf_nmt_interp.analysis.contributions import STATISTICS

        columns = dict.fromkeys(("line", "source_tokens", "target_tokens"), pa.int64())
        chosen = [name for name in STATISTICS if self.args.statistic in (None, name)]
        return pa.schema(columns | dict.fromkeys(chosen, pa.list_(pa.float64())))


class Heads(Translator):
    """Facts about the heads: the rows of `heads`."""

    def __init__(self, args: argparse.Namespace) -> None:
        from hf_nmt_interp.analysis.heads import token_counts
        from hf_nmt_interp.text.corpus import read_pairs

        super().__init__(args, args.model)
        self.counts = token_counts(self.tokenizer, read_pairs(*args.corpus)) if args.corpus else None

    def rows(self, lines: list[Texts]) -> list[Row]:
        """Target tokens, and facts about each head."""
        from hf_nmt_interp.analysis.heads import head_facts

        wanted = self.args.relevance_sentences != 0
        return head_facts(self.model, self.tokenizer, *self.checked(lines), self.counts, relevance=wanted)

    @property
    def schema(self) -> Any:
        """Columns of the rows."""
        from hf_nmt_interp.analysis.heads import fact_types
        from hf_nmt_interp.text.tables import arrow_schema

        return arrow_schema({"line": int, **fact_types()})
