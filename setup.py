"""The packages, and trainer_scripts as a part of hf_nmt_interp; pyproject.toml has everything else."""

from setuptools import find_namespace_packages, setup

SCRIPTS = "hf_nmt_interp.trainer_scripts"

setup(
    packages=[*find_namespace_packages(include=["hf_nmt_interp*"]), SCRIPTS], package_dir={SCRIPTS: "trainer_scripts"}
)
