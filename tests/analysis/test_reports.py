"""Files of the four reports: what is saved is loaded again, and files that are not reports are refused."""

import json

import numpy as np
import pytest

from hf_nmt_interp.analysis.calibration import CalibrationReport
from hf_nmt_interp.analysis.heads import HeadReport
from hf_nmt_interp.errors import InputError
from hf_nmt_interp.studies.contribution_study import ContributionStudy
from hf_nmt_interp.studies.detached import DetachedStudy

HEAD = {"kind": "encoder", "layer": 0, "head": 1, "relevance": None, "roles": ["positional: -1", "rare words"]}
STUDY = {"model": "m", "prefix": "random", "source_tokens": 3, "target_tokens": 4, "statistic": "accuracy"}
STUDY |= {"position": 0, "mean": 0.5, "low": None, "high": None, "sentences": 1}
SCORES = {"source_share": np.array([0.5, 0.75]), "log_probability": np.array([-1.0, -2.0])}
REPORTS = [
    HeadReport([HEAD], about={"model": "x"}),
    CalibrationReport([{"layer": "all", "mask_mean": 0.5}], [{"layer": 0, "low": 0.0}], {"fusion": "gate"}),
    ContributionStudy([STUDY]),
    DetachedStudy(SCORES, {name: values - 1 for name, values in SCORES.items()}),
]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: type(report).__name__)
def test_what_is_saved_is_loaded(report, tmp_path):
    for ending in ("json", "csv"):
        report.save(tmp_path / f"report.{ending}")
    assert (tmp_path / "report.csv").read_text() == report.to_csv()
    assert (tmp_path / "report.json").read_text() == report.to_json()
    ending = "csv" if isinstance(report, ContributionStudy) else "json"
    again = type(report).load(tmp_path / f"report.{ending}")
    assert again.table() == report.table()
    assert again.to_json() == report.to_json()
    with pytest.raises(InputError, match=r"path: '.*report.txt' must end in .json or .csv"):
        report.save(tmp_path / "report.txt")


def test_what_files_have():
    heads, calibration, study, detached = REPORTS
    assert list(json.loads(heads.to_json())) == ["about", "rows"]
    assert heads.to_csv() == "kind,layer,head,relevance,roles\nencoder,0,1,,positional: -1; rare words\n"
    assert list(json.loads(calibration.to_json())) == ["layers", "bins", "about"]
    assert calibration.to_csv() == "layer,mask_mean\nall,0.5\n"
    assert study.to_csv().splitlines()[1] == "m,random,3,4,accuracy,0,0.5,,,1"
    assert ContributionStudy([]).to_csv().startswith("model,prefix,source_tokens,")
    assert detached.to_csv().splitlines() == [
        *("score,true,detached,auroc", "source_share,0.625,-0.375,1.0", "log_probability,-1.5,-2.5,0.875"),
    ]


@pytest.mark.parametrize(
    ("text", "cause"),
    [("[]", "TypeError"), ("{", "JSONDecodeError"), ("5", "TypeError"), ('{"rows": 5}', "TypeError")],
)
def test_what_is_no_report_is_named(tmp_path, text, cause):
    (tmp_path / "other.json").write_text(text)
    message = rf"path: '.*other.json' is not a report of heads in JSON \({cause}\); the verb heads writes one"
    with pytest.raises(InputError, match=message):
        HeadReport.load(tmp_path / "other.json")
    with pytest.raises(InputError, match=rf"is not a report of calibration in JSON \({cause}\); its method save"):
        CalibrationReport.load(tmp_path / "other.json")
    with pytest.raises(InputError, match=r"\(FileNotFoundError\); its method save writes one"):
        DetachedStudy.load(tmp_path / "none.json")


def test_a_table_that_is_no_study_is_named(tmp_path):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"path: '.*other.csv' is not a contribution study; its columns are a, b"):
        ContributionStudy.load(tmp_path / "other.csv")
