"""The long commands of the pages run too: page by page, in a folder of small files, for two steps."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hf_nmt_interp as hni
from hf_nmt_interp.report.cards import model_card
from tests.hub_server import TOKEN, hub_server
from tests.made_up_corpus import made_up_pairs
from tests.pages import PAGES, ROOT, load_script

# installs, the tests themselves, files; a study that finds no good heads in two steps (its own test gives it one)
SKIPPED = re.compile(
    r"^pip install|^pip download|^HYPOTHESIS_PROFILE|^printf|^cat |^python \S+/study_toy_attention\.py heads"
)
ALWAYS = """max_steps 2, early_steps 0 1, every 1, steps 2, classifier_steps 2, trials 1, candidates 4, seeds 2,
    tokens_per_batch 100, save_steps 1, eval_steps 1, warmup_steps 1, test_size 4, sizes 4 8, vocab_size 60,
    prefix reference"""
WHERE_GIVEN = "limit 2, pairs 2, relevance-sentences 2, anneal_steps 1, penalty_warmup_steps 1"
MODELS = {"europarl/de-en": "de-en", "europarl/en-de": "en-de", "runs/l0/pruned": "en-de"}  # if no command makes them
TREE = ["1 the the DET _ _ 2 det _ _", "2 dog dog NOUN _ _ 3 nsubj _ _", "3 sees see VERB _ _ 0 root _ _", ""]


def options(text: str) -> dict[str, str]:
    return dict(option.split(maxsplit=1) for option in text.split(","))


def miniature(command: str) -> str:
    """The command with small numbers at its end, where they replace those before."""
    script = re.search(r"(trainer_scripts/\w+\.py)(?: (\w+))?", command)
    small = {name: value for name, value in options(WHERE_GIVEN).items() if f"--{name} " in command}
    if "alignment-table" in command:
        small |= {"limit": "2", "sigma": "0 0.15"}
    if script:
        parser = load_script(ROOT / script[1]).make_parser()
        if parser._subparsers:
            parser = parser._subparsers._group_actions[0].choices[script[2]]
        known = parser._option_string_actions
        small |= {name: value for name, value in options(ALWAYS).items() if f"--{name}" in known}
    head, mark, comment = command.partition(" #")
    if importlib.util.find_spec("eflomal") is None:
        head = head.replace(" --eflomal", "")
    return head + "".join(f" --{name} {value}" for name, value in small.items()) + mark + comment


def test_numbers_get_small():
    assert miniature("hf-nmt-interp x --limit 200 # why") == "hf-nmt-interp x --limit 200 --limit 2 # why"
    assert "--max_steps 9 --max_steps 2 " in miniature("python trainer_scripts/train_mrt.py --max_steps 9")
    stages = miniature("python trainer_scripts/study_contributions.py stages --vocab_size 6000")
    assert stages.endswith("stages --vocab_size 6000 --every 1 --steps 2 --vocab_size 60 --prefix reference")


def long_commands(page: Path) -> str:
    """A shell script of the page's commands that the quick tests only read."""
    text = page.read_text(encoding="utf-8")
    lines = []
    for language, block in re.findall(r"^```(bash|console)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            if language == "console":
                lines += [miniature(line[2:])] if line.startswith("$ ") and "data/" in line else []
            elif not SKIPPED.match(line):
                is_command = re.search(r"trainer_scripts/|hf-nmt-interp |hf_nmt_interp ", line)
                lines.append(miniature(line) if is_command else line)
    return "\n".join(lines)


def make_files(folder: Path, script: str) -> None:
    """All texts, gold links, trees, data sets and models that the commands read but do not make."""
    pairs = made_up_pairs(16)
    usual = {f"{name}.{language}" for name in ("train", "test") for language in ("en", "de")}  # also as train.$1
    for name in usual | set(re.findall(r"[\w./$-]+\.(?:en|de|gold|conllu)\b", script)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        side = {".en": 0, ".de": 1}.get(path.suffix)
        if side is not None:
            lines = [pair[side] for pair in pairs]
        elif path.suffix == ".gold":
            lines = [" ".join(f"{i}-{i}" for i in range(len(pair[0].split()))) for pair in pairs]
        else:
            lines = [word.replace(" ", "\t") for word in TREE * 3]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name in re.findall(r"--(?:train|valid) ([\w./-]+\.csv)", script):
        rows = [f"{pair[0]},{number % 2}" for number, pair in enumerate(pairs)]
        (folder / name).write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    dataset = folder / "Helsinki-NLP" / "opus-100"
    dataset.mkdir(parents=True)
    rows = [json.dumps({"translation": dict(zip(("en", "de"), pair, strict=True))}) for pair in pairs]
    (dataset / "train.jsonl").write_text("\n".join(rows), encoding="utf-8")
    (dataset / "README.md").write_text("---\nconfigs:\n- config_name: de-en\n  data_files: train.jsonl\n---\n")
    for name, direction in MODELS.items():
        if name in script and f"--output_dir {name.removesuffix('/pruned')} " not in script:
            for part in hni.load_demo(direction):
                part.save_pretrained(folder / name)
            (folder / name / "README.md").write_text(model_card(folder / name), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if long_commands(page)], ids=lambda page: page.name)
def test_long_commands_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    script = long_commands(page)
    make_files(tmp_path, script)
    (tmp_path / "trainer_scripts").symlink_to(ROOT / "trainer_scripts")
    with hub_server(monkeypatch) as hub:
        paths = {"PYTHONPATH": str(ROOT), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        more = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "home")}
        more |= {"HF_HUB_DISABLE_XET": "1"}  # the stand-in does not speak it
        command = {"args": ["bash", "-exc", script], "cwd": tmp_path, "env": os.environ | paths | more}
        done = subprocess.run(**command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
