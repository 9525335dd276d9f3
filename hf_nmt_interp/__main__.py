"""`python -m hf_nmt_interp` is `hf-nmt-interp`."""

import sys

from hf_nmt_interp.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
