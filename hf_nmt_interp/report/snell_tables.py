"""Tables 3 to 8, 10, 11 and appendix A.1 of snell2021, in percent, as printed in the paper (including its stars)."""

from hf_nmt_interp.studies.attention_learning import PAIRS

# number of the table by measure, performance and set
TABLES = {
    ("agreement", "accuracy", "valid"): 5,
    ("agreement", "bleu", "valid"): 6,
    ("agreement", "accuracy", "train"): 7,
    ("agreement", "bleu", "train"): 8,
    ("kendall_tau", "accuracy", "valid"): 3,
    ("kendall_tau", "bleu", "valid"): 4,
}
# A of the pairs, A(random); xi of the pairs, xi*
_ROWS: dict[int, dict[str, str]] = {
    3: {
        "IMDB": "12.77 33.31 12.56 0.00  70.60 80.50 70.60 89.55",
        "Yelp": "20.38 36.75 20.98 0.00  87.44 93.20 87.44 96.20",
        "AG News": "26.31 36.65 20.55 0.00  89.31 93.54 85.85 96.05",
        "20 NG": "16.06 22.03 6.50 0.00  60.75 60.75 60.75 94.22",
        "SST": "11.68 31.43 15.01 0.00  76.69 83.53* 76.69 83.53",
        "Amzn": "15.21 35.84 9.33 0.00  69.91 88.07 57.36 90.38",
        "Multi30k": "7.89 27.54 3.93 0.00  22.94 36.61 22.94 66.29",
        "IWSLT14": "8.64 22.56 2.72 0.00  29.07 32.98 29.07 67.36",
        "News It-Pt": "4.82 17.16 1.63 0.00  14.01 18.25 8.10 55.41",
        "News En-Nl": "4.53 20.35 2.08 0.00  9.60 18.59 9.60 62.90",
        "News En-Pt": "4.65 18.20 2.17 0.00  14.10 14.10 7.71 67.75",
    },
    4: {
        "Multi30k": "8.68 27.54 4.24 0.00  1.99 6.91 1.99 37.89",
        "IWSLT14": "8.64 22.56 2.72 0.00  5.38 5.31 5.38 32.95",
        "News It-Pt": "4.82 17.16 1.63 0.00  0.09 0.55 0.04 24.71",
        "News En-Nl": "4.53 20.35 2.08 0.00  0.01 0.94 0.01 29.42",
        "News En-Pt": "4.41 18.20 2.05 0.00  0.01 0.22 0.01 37.04",
    },
    5: {
        "IMDB": "52.55 81.60 61.55 60.35 5.30  86.81 88.88 86.81 86.81 89.55",
        "Yelp": "17.55 75.38 58.90 35.00 5.80  90.39 95.22 95.31 93.59 96.20",
        "AG News": "39.24 55.13 43.08 48.13 6.20  93.54 96.05* 94.32 94.50 96.05",
        "20 NG": "65.08 41.33 64.82 63.07 5.11  91.16 60.75 84.57 84.57 94.22",
        "SST": "19.85 33.57 22.45 25.33 8.39  78.16 83.53* 78.16 82.38 83.53",
        "Amzn": "52.02 76.78 49.68 62.13 5.80  82.48 90.38* 82.48 88.07 90.38",
        "Multi30k": "31.02 34.43 27.06 48.78 7.11  43.45 43.45 43.45 48.58 66.29",
        "IWSLT14": "35.75 39.09 27.69 55.25 6.52  35.82 35.82 32.98 44.09 67.36",
        "News It-Pt": "29.13 38.62 25.45 52.48 6.17  21.82 25.06 21.82 25.06 55.41",
        "News En-Nl": "35.53 41.72 29.15 60.15 6.36  18.59 23.21 18.59 26.79 62.90",
        "News En-Pt": "35.90 37.37 30.23 65.49 6.34  19.12 19.12 19.12 27.85 67.75",
    },
    6: {
        "Multi30k": "30.77 34.43 27.24 48.70 7.19  11.43 11.43 11.43 16.41 37.89",
        "IWSLT14": "35.75 39.09 27.69 55.25 6.52  6.71 6.71 5.31 9.89 32.95",
        "News It-Pt": "29.13 38.62 25.45 52.48 6.17  1.29 2.16 1.29 2.16 24.71",
        "News En-Nl": "35.53 41.72 29.15 60.15 6.35  0.94 2.39 0.94 4.12 29.42",
        "News En-Pt": "35.77 37.37 30.37 64.94 6.34  0.74 0.74 0.74 4.28 37.04",
    },
    7: {
        "IMDB": "51.52 80.10 42.85 64.88 5.29  90.40 99.95* 90.40 95.01 99.95",
        "Yelp": "11.15 76.12 55.50 37.63 5.85  75.61 96.54 96.19 94.44 98.22",
        "AG News": "36.97 53.95 43.11 46.89 6.17  93.57 98.42* 94.63 95.54 98.42",
        "20 NG": "72.36 38.69 71.73 69.47 5.32  100.00 65.40 100.00 100.0 100.00",
        "SST": "21.82 29.35 20.48 28.50 8.48  97.72 100.00* 84.11 100.0* 100.00",
        "Amzn": "51.95 77.18 40.15 61.78 5.91  87.96 99.58* 80.98 91.09 99.58",
        "Multi30k": "32.89 34.67 28.36 56.39 7.21  43.27 43.27 43.27 51.97 80.76",
        "IWSLT14": "36.61 38.95 28.37 57.71 6.52  35.94 35.94 35.94 44.18 71.18",
        "News It-Pt": "31.03 38.70 27.11 64.81 6.15  22.69 25.96 22.69 39.98 77.10",
        "News En-Nl": "37.86 41.91 31.11 67.68 6.39  18.85 23.56 18.85 40.09 74.49",
        "News En-Pt": "37.43 37.23 31.76 71.96 6.35  19.33 19.33 19.33 42.41 77.97",
    },
    8: {
        "Multi30k": "32.89 34.67 28.36 7.16  11.87 11.87 11.87 52.28",
        "IWSLT14": "36.61 38.95 28.37 6.54  6.82 6.82 6.82 36.23",
        "News It-Pt": "31.03 38.70 27.11 6.17  1.30 2.30 1.30 42.40",
        "News En-Nl": "37.86 41.91 31.11 6.38  1.11 2.29 1.11 39.40",
        "News En-Pt": "37.43 37.23 31.76 6.37  0.83 0.83 0.83 46.57",
    },
}
# table 10: A(alpha,alpha_fr)
_FROZEN = {"IMDB": "9", "AG News": "17", "20 NG": "19", "SST": "14", "Amzn": "15", "Yelp": "8"}
# table 11, in percent: A(beta_uf,beta_log)
_LOGISTIC = {"IMDB": "84", "Yelp": "76", "AG News": "58", "20 NG": "45", "SST": "46", "Amzn": "60"}
# appendix A.1, in percent: A(alpha_opt,beta)
_OPTIMAL = {"Multi30k": "53"}
DATA_SETS = tuple(_ROWS[5])


def paper_row(table: int, data_set: str) -> dict[str, str]:
    """Cells of a data set in a table by name, {} if it has no such row; table 5 with tables 10, 11 and appendix A.1.

    >>> paper_row(4, "Multi30k")["xi*"], paper_row(4, "IMDB")
    ('37.89', {})
    """
    if data_set not in _ROWS[table]:
        return {}
    cells = _ROWS[table][data_set].split()
    pairs = PAIRS[: len(cells) // 2 - 1]  # tables 3, 4 and 8 are without alpha,beta
    names = [f"A({pair})" for pair in pairs] + ["A(random)"] + [f"xi({pair})" for pair in pairs] + ["xi*"]
    more = {"A(alpha,alpha_fr)": _FROZEN, "A(beta_uf,beta_log)": _LOGISTIC, "A(alpha_opt,beta)": _OPTIMAL}
    found = {name: column[data_set] for name, column in more.items() if table == 5 and data_set in column}
    return dict(zip(names, cells, strict=True)) | found
