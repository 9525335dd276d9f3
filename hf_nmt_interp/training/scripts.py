"""Where the training scripts are."""

from pathlib import Path


def find_scripts() -> dict[str, Path]:
    """The training scripts by their names without train_; next to the package, or inside it when installed."""
    package = Path(__file__).resolve().parents[1]
    found = sorted(package.glob("trainer_scripts/*.py")) or sorted(package.parent.glob("trainer_scripts/*.py"))
    found.sort(key=lambda path: path.stem.startswith("study_"))
    return {path.stem.removeprefix("train_").replace("_", "-"): path for path in found}
