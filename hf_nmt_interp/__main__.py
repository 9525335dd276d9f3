"""`python -m hf_nmt_interp` is `hf-nmt-interp`; `accelerate launch -m hf_nmt_interp` splits corpus runs."""

import sys

from hf_nmt_interp.cli.main import main
from hf_nmt_interp.training.launch import start_missing_processes

if __name__ == "__main__":
    start_missing_processes("hf_nmt_interp")
    sys.exit(main())
