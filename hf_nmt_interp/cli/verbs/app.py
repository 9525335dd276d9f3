"""Open a page in the browser to play with a translator: type a sentence, click its words, compare methods.

The page shows the same view as the reports. You can switch the method, compare two methods or models, edit the
translation (it is then force decoded), mask source words and see what changes, and download HTML, PNG or JSON.
This needs the extra `app` (gradio). The page is served to this computer only, unless --host names another address.

Examples:
  hf-nmt-interp app --model demo:en-de
  hf-nmt-interp app --model demo:en-de --model back=demo:de-en --port 7861
"""

import argparse

from hf_nmt_interp.cli import arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_model(parser, several=True)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=arguments.positive, default=7860, help="default: %(default)s")


def run(args: argparse.Namespace) -> None:
    from hf_nmt_interp.cli.loading import load_for
    from hf_nmt_interp.report.app import make_app

    models = arguments.labelled(args.model or [arguments.MODEL], "--model")
    app = make_app({label: load_for(args, name) for label, name in models.items()})
    app.launch(server_name=args.host, server_port=args.port, quiet=True, prevent_thread_lock=True)
    print(f"Open http://{args.host}:{args.port} in a browser; Ctrl-C stops it", flush=True)
    app.block_thread()
