"""Verb `calibration`, and masks where methods are chosen by name.

Also for cli/verbs/calibration.py.
"""

import json

SENTENCES = ("The old dog sleeps.", "A car!")


def test_table_rows_and_figures(run, calibrated_folder, tmp_path):
    code, out, err = run("calibration", "--model", calibrated_folder, *SENTENCES, "--figures", tmp_path / "figures")
    assert (code, err) == (0, "")
    assert "tau mask" in out
    assert "_ci" not in out
    assert {path.name for path in (tmp_path / "figures").glob("jsd*")} == {
        f"jsd_by_{what}.{ending}" for what in ("layer", "entropy") for ending in ("svg", "csv")
    }
    code, out, _ = run("calibration", "--model", calibrated_folder, *SENTENCES, "--format", "json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["layer"] for row in rows] == [0, 1, "all"]
    assert all(0 < row["mask_mean"] < 1 for row in rows)


def test_plain_models_have_no_masks(run, model_folder, tmp_path):
    options = ("--model", model_folder, *SENTENCES, "--format", "json", "--figures", tmp_path / "figures")
    code, out, err = run("calibration", *options)
    assert (code, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    known = {name for name, value in rows[0].items() if value is not None}
    assert known == {"model", "layer", "entropy", "kendall_attention", "entropy_ci", "kendall_attention_ci"}
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == {"kendall_by_layer"}
    code, _, err = run("attribute", "--model", model_folder, "--method", "mask", *SENTENCES)
    assert code == 2
    assert "method: 'mask' needs a calibrated model, not MarianMTModel" in err


def test_masks_explain_align_and_are_compared(run, calibrated_folder, tmp_path):
    code, out, err = run("attribute", "--model", calibrated_folder, "--method", "mask", "--format", "json", *SENTENCES)
    assert (code, err, len(out.splitlines())) == (0, "", 2)
    (tmp_path / "a.en").write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    (tmp_path / "a.de").write_text("Der alte Hund schläft.\nEin Auto!\n", encoding="utf-8")
    files = (tmp_path / "a.en", tmp_path / "a.de")
    code, out, err = run("align", "--model", calibrated_folder, "--method", "mask", *files)
    assert (code, len(out.splitlines())) == (0, 2), err
    code, out, err = run(
        "faithfulness", "--model", calibrated_folder, "--method", "mask", "--format", "json", *SENTENCES
    )
    assert (code, err) == (0, "")
    assert {json.loads(line)["method"] for line in out.splitlines()} == {"mask", "random"}
