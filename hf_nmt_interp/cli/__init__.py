"""The command line, `hf-nmt-interp <verb>`."""
