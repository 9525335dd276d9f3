"""The verbs, one module each.

A verb module has a docstring (summary, description, `Examples:` that run), `add_arguments(parser)` and `run(args)`;
its top imports nothing heavy, so that `--help` stays fast. To add one: write the module, add its name to `VERBS` in
`cli.main`.
"""
