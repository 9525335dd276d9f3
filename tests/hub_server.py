"""A stand-in for the Hugging Face Hub on the loopback: as much of it as a push needs."""

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

TOKEN = "hf_right"


class Hub(ThreadingHTTPServer):
    """Repositories with their commits; `cut` uploads of weights are cut off before they are answered."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos: dict[str, dict[str, Any]] = {}
        self.objects: dict[str, bytes] = {}
        self.cut = 0
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that were cut off on purpose say nothing."""


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

    def answer(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_PUT(self) -> None:
        if self.server.cut:
            self.server.cut -= 1
            self.rfile.read(10)
            self.connection.close()
            return
        data = self.body()
        self.server.objects[hashlib.sha256(data).hexdigest()] = data
        self.answer(200, {})

    def do_POST(self) -> None:
        data, path = self.body(), self.path.split("?")[0]
        self.server.requests.append(path)
        if path == "/api/validate-yaml":
            self.answer(200, {"errors": [], "warnings": []})
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.answer(401, {"error": "Invalid username or password."})
        elif path == "/api/repos/create":
            self.create(json.loads(data))
        elif "/preupload/" in path:
            files = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                    "shouldIgnore": False,
                }
                for file in json.loads(data)["files"]
            ]
            self.answer(200, {"files": files})
        elif path.endswith("/objects/batch"):
            self.batch(json.loads(data))
        elif "/commit/" in path:
            self.commit(path.removeprefix("/api/models/").split("/commit/")[0], data)
        else:
            self.answer(404, {"error": path})

    def create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization'] or 'me'}/{asked['name']}"
        if name in self.server.repos:
            self.answer(409, {"error": "You already created this repo", "url": f"{self.server.url}/{name}"})
            return
        self.server.repos[name] = {"visibility": asked.get("visibility"), "commits": []}
        self.answer(200, {"url": f"{self.server.url}/{name}", "name": name, "id": name})

    def batch(self, asked: dict[str, Any]) -> None:
        objects = []
        for item in asked["objects"]:
            upload = {"upload": {"href": f"{self.server.url}/store/{item['oid']}"}}
            known = item["oid"] in self.server.objects
            objects.append(item if known else item | {"actions": upload})
        self.answer(200, {"transfer": "basic", "objects": objects})

    def commit(self, repo: str, data: bytes) -> None:
        files: dict[str, bytes] = {}
        for line in map(json.loads, data.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.objects[value["oid"]]
        self.server.repos[repo]["commits"].append(files)
        url = f"{self.server.url}/{repo}/commit/{'0' * 40}"
        self.answer(200, {"commitUrl": url, "commitOid": "0" * 40, "success": True})


@contextmanager
def hub_server(monkeypatch: Any) -> Iterator[Hub]:
    """The server, with the real client of huggingface_hub set to talk to it."""
    from huggingface_hub import constants

    server = Hub()
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
