"""Wrong types in the files of model folders and checkpoints: one line with file and field."""

import json
import shutil

import pytest

from hf_nmt_interp.errors import InputError
from hf_nmt_interp.training.checkpoints import check_checksums, list_checkpoints

WRONG = [
    ("config.json", "d_model", "x", "Field 'd_model' expected int, got str"),
    ("config.json", "dtype", "float99", "config.json: dtype 'float99' is not known; correct it there, e.g. float32"),
    ("config.json", "dtype", 7, "config.json: dtype 7 is not known; correct it there"),
    ("config.json", "alignment", 5, "the entry alignment of its config.json, 5, is not a layer, head, shift and rate"),
    ("config.json", "alignment", {"layer": "x"}, "the entry alignment of its config.json, {'layer': 'x'}, is not a"),
    ("generation_config.json", "max_length", "x", "generation_config.json: max_length 'x' is not a valid value"),
    ("generation_config.json", "num_beams", -1, "generation_config.json: num_beams -1 is not a valid value"),
    ("generation_config.json", "do_sample", "x", "generation_config.json: do_sample 'x' is not a valid value"),
    ("generation_config.json", "eos_token_id", "x", "generation_config.json: eos_token_id 'x' is not a valid"),
]


@pytest.mark.parametrize(("file", "field", "value", "message"), WRONG)
def test_fields_of_another_type(run, model_folder, tmp_path, file, field, value, message):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    found = json.loads((folder / file).read_bytes())
    (folder / file).write_text(json.dumps(found | {field: value}))
    (tmp_path / "in").write_text("A dog.\n")
    code, out, err = run("align", "--model", folder, tmp_path / "in")
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert message in err


def test_states_of_another_type(model_folder, tmp_path):
    folder = shutil.copytree(model_folder, tmp_path / "checkpoint-3")
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": "x"}))
    with pytest.raises(InputError, match=r"trainer_state.json: global_step 'x' is not of the type int; delete this"):
        check_checksums(folder)
    assert list_checkpoints(tmp_path) == [folder]
    (folder / "training_args.json").write_text("[]")
    assert list_checkpoints(tmp_path) == []
