"""Pushing models: by the function, a trainer and the command line, to a stand-in Hub and the real client.

Also for cli/verbs/push.py.
"""

import json

import pytest
from huggingface_hub import ModelCard

import hf_nmt_interp as hni
from hf_nmt_interp import hub as hub_module
from hf_nmt_interp.cli.main import main
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.report.cards import model_card
from hf_nmt_interp.training.translation import TranslationConfig, TranslationTrainer
from tests.hub_server import TOKEN, hub_server
from tests.tiny_models import tiny_model
from tests.tiny_tokenizers import make_marian_tokenizer

NEEDED = {"config.json", "generation_config.json", "model.safetensors", "tokenizer_config.json", "README.md"}
CODE = {"configuration_gated.py", "modeling_gated.py", "gates.py", "heads.py"}


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """A gated model and its tokenizer."""
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer = make_marian_tokenizer(folder)
    tiny_model("marian", vocab_size=len(tokenizer)).save_pretrained(folder)
    return hni.GatedMarianMTModel.from_pretrained(folder), tokenizer


@pytest.fixture
def folder(parts, tmp_path):
    for part in parts:
        part.save_pretrained(tmp_path / "model")
    (tmp_path / "model/README.md").write_text(model_card(tmp_path / "model"), encoding="utf-8")
    return tmp_path / "model"


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setattr(hub_module.time, "sleep", lambda seconds: None)
    with hub_server(monkeypatch) as server:
        yield server


def test_a_model_goes_in_one_commit_and_is_private(hub, parts) -> None:
    pushed = hni.push_to_hub(*parts, "me/gated")
    (commit,) = hub.repos["me/gated"]["commits"]
    assert hub.repos["me/gated"]["visibility"] == "private"
    assert set(commit) == set(pushed.files) >= NEEDED | CODE
    assert {name: len(data) for name, data in commit.items()} == pushed.files
    assert json.loads(commit["config.json"])["auto_map"]["AutoModelForSeq2SeqLM"] == (
        "modeling_gated.GatedMarianMTModel"
    )
    assert b"library_name: transformers" in commit["README.md"]
    hni.push_to_hub(*parts, "me/gated", card="---\nlicense: mit\n---\nAnother.", message="again")
    assert len(hub.repos["me/gated"]["commits"]) == 2


def test_dry_run_and_command_line(hub, folder, capsys) -> None:
    assert main(["push", str(folder), "me/cli", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert (hub.requests, "model.safetensors" in shown, "nothing was uploaded" in shown) == ([], True, True)
    (folder / "training_args.bin").write_bytes(b"pickle")
    (folder / "trainer_state.json").write_text("{}")
    assert main(["push", str(folder), "me/cli", "--public"]) == 0
    assert "in one commit: http://127.0.0.1" in capsys.readouterr().out
    repo = hub.repos["me/cli"]
    assert (repo["visibility"], len(repo["commits"])) == ("public", 1)
    card = repo["commits"][0]["README.md"].decode()
    assert "\n# me/cli\n" in card
    assert 'name = "me/cli"\n' in card
    assert "model_name: me/cli\n" in card
    assert "# model\n" in (folder / "README.md").read_text(encoding="utf-8")  # the file itself is not changed
    assert not {"training_args.bin", "trainer_state.json"} & set(repo["commits"][0])


@pytest.mark.parametrize("cuts", [1, 2])
def test_an_upload_that_is_cut_off_is_tried_again(hub, folder, cuts) -> None:
    hub.cut = cuts
    hni.push_folder(folder, "me/cut")
    (commit,) = hub.repos["me/cut"]["commits"]
    assert commit["model.safetensors"] == (folder / "model.safetensors").read_bytes()


def test_an_upload_that_stays_cut_off_commits_nothing_and_can_be_run_again(hub, folder) -> None:
    hub.cut = 100
    with pytest.raises(InputError, match=r"was not pushed after 3 attempts, and nothing was committed: .*; run it"):
        hni.push_folder(folder, "me/cut")
    assert hub.repos["me/cut"]["commits"] == []
    hub.cut = 0
    hni.push_folder(folder, "me/cut")
    assert len(hub.repos["me/cut"]["commits"]) == 1


def test_a_wrong_token_is_told_and_nothing_is_made(hub, folder, capsys, monkeypatch) -> None:
    with pytest.raises(InputError, match=r"token: the Hub refused access to me/x \(401\); nothing was uploaded"):
        hni.push_folder(folder, "me/x", token="hf_wrong_secret")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong_secret")
    assert main(["push", str(folder), "me/x"]) == 2
    shown = capsys.readouterr()
    assert "hf auth login" in shown.err
    assert "hf_wrong_secret" not in shown.err + shown.out
    assert hub.repos == {}


def test_a_trainer_pushes_what_it_saves(hub, parts, tmp_path) -> None:
    model, tokenizer = parts
    config = TranslationConfig(
        output_dir=str(tmp_path / "run"), hub_model_id="me/trained", report_to="none", use_cpu=True, learning_rate=3e-4
    )
    trainer = TranslationTrainer(
        model=model, args=config, train_dataset=[{"input_ids": [3], "labels": [3]}], processing_class=tokenizer
    )
    trainer.model.name_or_path = "me/base"
    trainer.state.log_history = [{"eval_bleu": 1.0, "eval_chrf": 2.0}, {"eval_bleu": 12.3, "eval_chrf": 23.4}]
    trainer.push_to_hub(license="cc0-1.0")
    (commit,) = hub.repos["me/trained"]["commits"]
    assert hub.repos["me/trained"]["visibility"] == "private"
    assert set(commit) >= NEEDED | CODE
    assert b"license: cc0-1.0" in commit["README.md"]
    assert b"| `learning_rate` | `0.0003` |" in commit["README.md"]
    card = ModelCard(commit["README.md"].decode()).data
    assert card.base_model == "me/base"
    assert [(score.dataset_name, score.metric_value) for score in card.eval_results] == [
        ("validation", 12.3),
        ("validation", 23.4),
    ]


def test_branches_are_refused(hub, parts, tmp_path) -> None:
    with pytest.raises(InputError, match="hub_revision: 'next' is not supported, only main; leave it out"):
        training(tmp_path, parts, hub_revision="next")
    with pytest.raises(InputError, match=r"^revision: 'next' is not supported, only main; leave it out"):
        training(tmp_path, parts).push_to_hub(revision="next")
    assert hub.repos["me/trained"]["commits"] == []


def test_a_card_of_an_earlier_training_is_not_sent(hub, parts, tmp_path) -> None:
    (tmp_path / "README.md").write_text("Of an earlier training.")
    trainer = training(tmp_path, parts, hub_strategy="end", max_steps=1)
    trainer.train()
    trainer.push_to_hub()
    assert b"| `max_steps` | `1` |" in hub.repos["me/trained"]["commits"][-1]["README.md"]
    (tmp_path / "README.md").write_text("Of this one, by hand.")
    trainer.push_to_hub()
    assert hub.repos["me/trained"]["commits"][-1]["README.md"] == b"Of this one, by hand."


def training(folder, parts, **settings):
    model, tokenizer = parts
    quiet = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "max_steps": 2, "save_steps": 1}
    config = TranslationConfig(output_dir=str(folder), push_to_hub=True, hub_model_id="me/trained", **quiet | settings)
    pairs = [{"input_ids": [3], "labels": [3]}]
    return TranslationTrainer(model=model, args=config, train_dataset=pairs, processing_class=tokenizer)


def test_a_training_pushes_its_checkpoints_without_pickles_and_tokens(hub, parts, tmp_path) -> None:
    trainer = training(tmp_path / "run", parts, hub_token=TOKEN, save_total_limit=1)
    assert hub.repos["me/trained"]["visibility"] == "private"
    trainer.train()
    commits = hub.repos["me/trained"]["commits"]
    assert len(commits) == 2
    for commit in commits:
        assert set(commit) >= NEEDED | CODE
        assert not {"training_args.bin", "optimizer.pt", "rng_state.pth", "training_args.json"} & set(commit)
        assert not any(TOKEN.encode() in content for content in commit.values())
        assert b'name = "me/trained"' in commit["README.md"]
    assert not list(tmp_path.rglob("training_args.bin"))
    assert not any(TOKEN in path.read_text() for path in tmp_path.rglob("*.json"))


def test_a_push_that_fails_does_not_end_a_training(hub, parts, tmp_path, caplog) -> None:
    trainer = training(tmp_path / "run", parts)
    hub.cut = 100
    trainer.train()
    assert trainer.state.global_step == 2
    assert caplog.text.count("'me/trained' was not pushed after 3 attempts") == 2
    assert hub.repos["me/trained"]["commits"] == []


def test_a_wrong_token_is_told_before_the_training(hub, parts, tmp_path) -> None:
    with pytest.raises(InputError, match=r"token: the Hub refused access to me/trained \(401\)"):
        training(tmp_path, parts, hub_token="hf_wrong_secret")


@pytest.mark.parametrize("strategy", ["checkpoint", "all_checkpoints"])
def test_states_of_optimizers_are_not_for_the_hub(parts, tmp_path, strategy) -> None:
    with pytest.raises(InputError, match=f"hub_strategy: '{strategy}' would upload pickled optimizer states"):
        training(tmp_path, parts, hub_strategy=strategy)


def test_mistakes_of_our_own_are_no_errors_of_the_user(folder, monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.HfApi.create_repo", lambda *args, **kwargs: None)
    with pytest.raises(AttributeError):
        hni.push_folder(folder, "me/x")


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("config.json", "no config.json"),
        ("model.safetensors", "no weights in safetensors"),
        ("tokenizer_config.json", "no tokenizer"),
        ("generation_config.json", "no generation_config.json"),
        ("README.md", "no card"),
        ("modeling_gated.py", "no modeling_gated.py, the code of its model"),
    ],
)
def test_folders_that_others_could_not_use_are_refused(folder, missing, message) -> None:
    (folder / missing).unlink()
    with pytest.raises(InputError, match=message):
        hni.push_folder(folder, "me/x", dry_run=True)


@pytest.mark.parametrize("text", ['{"model_type": "ma', "5", ""])
def test_a_configuration_that_is_none_is_refused(folder, text) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(InputError, match=r"config.json that is not a configuration \(.*\); save the model again"):
        hni.push_folder(folder, "me/x", dry_run=True)


def test_names_that_the_hub_does_not_take(hub, folder) -> None:
    for dry_run in (True, False):
        with pytest.raises(InputError, match="repo_id: 'a//b' is not a valid name"):
            hni.push_folder(folder, "a//b", dry_run=dry_run)
    assert hub.requests == []
