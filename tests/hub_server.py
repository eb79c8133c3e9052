#!/usr/bin/env python3
"""Serve a folder as a read-only Hugging Face Hub on 127.0.0.1 (standard library only).

    python tests/hub_server.py [--root HUB] [--port 0] [--log requests.jsonl] [--delay S] [--fail STATUS]

HUB/datasets/<org>/<name>/... is one dataset repository each, with the single revision "main". The first line printed
is the one to export:

    HF_ENDPOINT=http://127.0.0.1:PORT

Export it before Python starts: huggingface_hub and datasets read it when they are imported. In a test:

    with HubServer(root) as hub:            # free port, own thread
        subprocess.run(..., env={**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path)})
        assert not [r for r in hub.requests if r["status"] >= 500]

Endpoints (what datasets 5 and huggingface_hub 2 call):

    GET       /api/datasets/ORG/NAME[/revision/REV]          repository info, with siblings
    GET       /api/datasets/ORG/NAME/tree/REV[/PATH]         ?recursive= &expand= &limit= &cursor=
    POST      /api/datasets/ORG/NAME/paths-info/REV          paths=...
    GET       /api/datasets/ORG/NAME/refs
    GET HEAD  /datasets/ORG/NAME/resolve/REV/PATH            ETag, X-Repo-Commit, X-Linked-*, Range
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit

LFS_SUFFIXES = {".parquet", ".arrow", ".zip", ".gz", ".bin"}  # what the hub's .gitattributes would keep in LFS
DATE = "2024-04-03T12:00:00.000Z"


class NotFound(Exception):  # noqa: N818
    """404 with the X-Error-Code that huggingface_hub maps to an exception class."""

    def __init__(self, code: str, message: str, commit: str | None = None) -> None:
        super().__init__(message)
        self.code, self.commit = code, commit


class File:
    def __init__(self, path: pathlib.Path, name: str) -> None:
        data = path.read_bytes()
        self.path, self.name, self.size = path, name, len(data)
        self.oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # git blob id
        self.sha256 = hashlib.sha256(data).hexdigest()
        self.lfs = path.suffix in LFS_SUFFIXES
        self.etag = self.sha256 if self.lfs else self.oid

    def entry(self, expand: bool) -> dict:
        out = {"type": "file", "oid": self.oid, "size": self.size, "path": self.name}
        if self.lfs:
            out["lfs"] = {"oid": self.sha256, "size": self.size, "pointerSize": 134}
        return out | (last_commit() if expand else {})


def last_commit() -> dict:
    return {"lastCommit": {"id": "0" * 40, "title": "local mirror", "date": DATE}}


class Repo:
    """One dataset repository as it is on disk now; the commit id is a hash of names and contents."""

    def __init__(self, folder: pathlib.Path, repo_id: str) -> None:
        self.id = repo_id
        files = (p for p in sorted(folder.rglob("*")) if p.is_file())
        self.files = {f.name: f for f in (File(p, p.relative_to(folder).as_posix()) for p in files)}
        self.sha = hashlib.sha1("".join(f"{f.name}\0{f.sha256}\n" for f in self.files.values()).encode()).hexdigest()

    def check(self, revision: str) -> None:
        if revision not in ("main", self.sha):
            raise NotFound("RevisionNotFound", f"Invalid rev id: {revision}")

    def get(self, name: str) -> File:
        if name not in self.files:
            raise NotFound("EntryNotFound", "Entry not found", self.sha)
        return self.files[name]

    def info(self) -> dict:
        return {
            "_id": self.sha[:24],
            "id": self.id,
            "author": self.id.split("/")[0],
            "sha": self.sha,
            "lastModified": DATE,
            "createdAt": DATE,
            "private": False,
            "gated": False,
            "disabled": False,
            "tags": [],
            "downloads": 0,
            "likes": 0,
            "siblings": [{"rfilename": n} for n in self.files],
        }

    def tree(self, path: str, recursive: bool, expand: bool) -> list[dict]:
        prefix = f"{path}/" if path else ""
        below = [f for n, f in self.files.items() if n.startswith(prefix)]
        if not below:
            raise NotFound("EntryNotFound", f'{path} does not exist on "main"', self.sha)
        folders, out = {}, []
        for f in below:
            parts = f.name[len(prefix) :].split("/")
            for depth in range(1, len(parts) if recursive else min(len(parts), 2)):
                folder = prefix + "/".join(parts[:depth])
                oid = hashlib.sha1(f"{self.sha}{folder}".encode()).hexdigest()
                folders[folder] = {"type": "directory", "oid": oid, "size": 0, "path": folder} | (
                    last_commit() if expand else {}
                )
            if recursive or len(parts) == 1:
                out.append(f.entry(expand))
        return list(folders.values()) + out


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer

    def log_message(self, *args) -> None:  # the request log is HubServer.record
        pass

    # -- answering ------------------------------------------------------------------------------------------------

    def send(self, status: int, body: bytes = b"", headers: dict | None = None, length: int | None = None) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, str(value))
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.server.record(self, status, len(body) if self.command != "HEAD" else 0)

    def send_json(self, data, status: int = 200, headers: dict | None = None) -> None:
        self.send(
            status, json.dumps(data).encode(), {"Content-Type": "application/json; charset=utf-8", **(headers or {})}
        )

    def handle_request(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        if self.server.delay:
            time.sleep(self.server.delay)
        if self.server.fail:
            return self.send_json({"error": "injected"}, self.server.fail)
        url = urlsplit(self.path)
        query = {k: v[-1] for k, v in parse_qs(url.query).items()}
        try:
            for method, pattern, action in ROUTES:
                match = re.fullmatch(pattern, url.path)
                if match and self.command in method:
                    groups = {k: unquote(v or "") for k, v in match.groupdict().items()}
                    repo = self.server.repo(groups["org"], groups["name"])
                    return action(
                        self, repo, groups.get("rev") or "main", groups.get("path", "").strip("/"), query, body
                    )
            raise NotFound("RepoNotFound", "Repository not found")
        except NotFound as e:
            headers = {"X-Error-Code": e.code, "X-Error-Message": str(e)}
            if e.commit:
                headers["X-Repo-Commit"] = e.commit
            self.send_json({"error": str(e)}, 404, headers)

    do_GET = do_HEAD = do_POST = handle_request  # noqa: N815

    # -- endpoints ------------------------------------------------------------------------------------------------

    def repo_info(self, repo: Repo, rev: str, path: str, query: dict, body: bytes) -> None:
        repo.check(rev)
        self.send_json(repo.info())

    def refs(self, repo: Repo, rev: str, path: str, query: dict, body: bytes) -> None:
        self.send_json(
            {
                "tags": [],
                "converts": [],
                "branches": [{"name": "main", "ref": "refs/heads/main", "targetCommit": repo.sha}],
            }
        )

    def tree(self, repo: Repo, rev: str, path: str, query: dict, body: bytes) -> None:
        repo.check(rev)

        def flag(key: str) -> bool:
            return query.get(key, "").lower() in ("true", "1")

        entries = repo.tree(path, flag("recursive"), flag("expand"))
        limit, start = int(query.get("limit") or 1000), int(query.get("cursor") or 0)
        headers = {}
        if start + limit < len(entries):
            rest = "&".join(f"{k}={quote(v)}" for k, v in {**query, "cursor": str(start + limit)}.items())
            headers["Link"] = f'<{self.server.endpoint}{urlsplit(self.path).path}?{rest}>; rel="next"'
        self.send_json(entries[start : start + limit], headers=headers)

    def paths_info(self, repo: Repo, rev: str, path: str, query: dict, body: bytes) -> None:
        repo.check(rev)
        if "json" in self.headers.get("Content-Type", ""):
            form = json.loads(body or b"{}")
            paths, expand = form.get("paths", []), bool(form.get("expand"))
        else:
            form = parse_qs(body.decode())
            paths, expand = form.get("paths", []), form.get("expand", [""])[-1].lower() == "true"
        known = {e["path"]: e for e in repo.tree("", True, expand)} if repo.files else {}
        self.send_json([known[p] for p in paths if p in known])

    def resolve(self, repo: Repo, rev: str, path: str, query: dict, body: bytes) -> None:
        repo.check(rev)
        file = repo.get(path)
        headers = {
            "ETag": f'"{file.etag}"',
            "X-Repo-Commit": repo.sha,
            "Accept-Ranges": "bytes",
            "Content-Type": "application/octet-stream" if file.lfs else "text/plain; charset=utf-8",
        }
        if file.lfs:
            headers |= {"X-Linked-Etag": f'"{file.etag}"', "X-Linked-Size": file.size}
        first, last, status = 0, file.size - 1, 200
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if wanted and wanted[0] != "bytes=-":
            a, b = wanted.groups()
            first, last = (max(0, file.size - int(b)), last) if not a else (int(a), min(last, int(b)) if b else last)
            if first > last:
                return self.send(416, headers={"Content-Range": f"bytes */{file.size}"})
            status, headers["Content-Range"] = 206, f"bytes {first}-{last}/{file.size}"
        size = last - first + 1
        if self.command == "HEAD":
            return self.send(status, headers=headers, length=size)
        with open(file.path, "rb") as f:
            f.seek(first)
            self.send(status, f.read(size), headers)


_API = r"/api/datasets/(?P<org>[^/]+)/(?P<name>[^/]+)"
ROUTES = [
    (("GET",), _API, Handler.repo_info),
    (("GET",), _API + r"/revision/(?P<rev>[^/]+)", Handler.repo_info),
    (("GET",), _API + r"/refs", Handler.refs),
    (("GET",), _API + r"/tree/(?P<rev>[^/]+)(?P<path>/.*)?", Handler.tree),
    (("POST",), _API + r"/paths-info/(?P<rev>[^/]+)", Handler.paths_info),
    (("GET", "HEAD"), r"/datasets/(?P<org>[^/]+)/(?P<name>[^/]+)/resolve/(?P<rev>[^/]+)/(?P<path>.+)", Handler.resolve),
]


class HubServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, root: pathlib.Path | str, port: int = 0, log: pathlib.Path | None = None, delay: float = 0, fail: int = 0
    ) -> None:
        self.root, self.log, self.delay, self.fail = pathlib.Path(root).resolve(), log, delay, fail
        self.requests: list[dict] = []
        self._repos: dict[str, tuple[tuple, Repo]] = {}
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", port), Handler)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def repo(self, org: str, name: str) -> Repo:
        folder = self.root / "datasets" / org / name
        if not all(re.fullmatch(r"\w[\w.-]*", part) for part in (org, name)) or not folder.is_dir():
            raise NotFound("RepoNotFound", "Repository not found")
        stamp = tuple(
            (str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in sorted(folder.rglob("*")) if p.is_file()
        )
        with self._lock:  # hash again only when something changed on disk
            if self._repos.get(f"{org}/{name}", (None,))[0] != stamp:
                self._repos[f"{org}/{name}"] = (stamp, Repo(folder, f"{org}/{name}"))
            return self._repos[f"{org}/{name}"][1]

    def record(self, handler: Handler, status: int, sent: int) -> None:
        row = {
            "t": round(time.time(), 3),
            "method": handler.command,
            "path": handler.path,
            "status": status,
            "sent": sent,
            "range": handler.headers.get("Range"),
            "auth": "Authorization" in handler.headers,
        }
        with self._lock:
            self.requests.append(row)
            if self.log:
                with open(self.log, "a", encoding="utf-8") as f:
                    f.write(json.dumps(row) + "\n")

    def handle_error(self, request, client_address) -> None:
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):  # a client that hangs up is no error
            super().handle_error(request, client_address)

    def __enter__(self) -> HubServer:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc) -> None:
        self.shutdown()
        self.server_close()


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parent / "hub")
    ap.add_argument("--port", type=int, default=0, help="0: any free port")
    ap.add_argument("--log", type=pathlib.Path, help="append one JSON line a request")
    ap.add_argument("--delay", type=float, default=0, help="seconds to wait before each answer")
    ap.add_argument("--fail", type=int, default=0, help="answer every request with this status, e.g. 503")
    args = ap.parse_args()
    if not (args.root / "datasets").is_dir():
        ap.error(f"{args.root} has no folder datasets/")
    server = HubServer(args.root, args.port, args.log, args.delay, args.fail)
    print(f"HF_ENDPOINT={server.endpoint}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()


if __name__ == "__main__":
    main()
