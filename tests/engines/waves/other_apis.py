"""Stand-ins of Mistral's and of Gemini's batch jobs on this machine, for their official clients."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.faults.world import answer

Json = dict[str, Any]


@dataclass
class Jobs:
    """Files and jobs; a job ends at its second look."""

    files: dict[str, bytes] = field(default_factory=dict)
    jobs: dict[str, Json] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    answer_lost: int = 0

    def keep(self, content: bytes) -> str:
        name = f"file-{len(self.files)}"
        self.files[name] = content
        return name

    def requests(self, name: str) -> list[Json]:
        return [json.loads(line) for line in self.files[name].splitlines()]

    def made(self, request: web.Request, job: Json) -> web.Response:
        if self.answer_lost:
            self.answer_lost -= 1
            request.transport.close()
        return web.json_response(job)


class MistralApi(Jobs):
    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/v1/files", self.upload)
        app.router.add_get("/v1/files/{id}/content", self.content)
        app.router.add_delete("/v1/files/{id}", self.delete)
        app.router.add_post("/v1/batch/jobs", self.create)
        app.router.add_get("/v1/batch/jobs", self.list)
        app.router.add_get("/v1/batch/jobs/{id}", self.look)
        return app

    async def upload(self, request: web.Request) -> web.Response:
        form = await request.post()
        assert form["purpose"] == "batch"
        name = self.keep(form["file"].file.read())
        about = {"bytes": 1, "created_at": 1, "filename": form["file"].filename, "sample_type": "batch_request"}
        return web.json_response({"id": name, "object": "file", "purpose": "batch", "source": "upload", **about})

    async def content(self, request: web.Request) -> web.Response:
        return web.Response(body=self.files[request.match_info["id"]], content_type="application/octet-stream")

    async def delete(self, request: web.Request) -> web.Response:
        self.deleted.append(request.match_info["id"])
        return web.json_response({"id": self.deleted[-1], "object": "file", "deleted": True})

    async def create(self, request: web.Request) -> web.Response:
        body = await request.json()
        names = ("input_files", "endpoint", "model", "metadata")
        total = len(self.requests(body["input_files"][0]))
        counts = {"total_requests": total, "completed_requests": 0, "succeeded_requests": 0, "failed_requests": 0}
        job = {"id": f"job-{len(self.jobs)}", "object": "batch", "status": "QUEUED", "created_at": int(time.time())}
        self.jobs[job["id"]] = {**job, "errors": [], **counts, **{name: body.get(name) for name in names}}
        return self.made(request, self.jobs[job["id"]])

    async def list(self, request: web.Request) -> web.Response:
        page, size = int(request.query["page"]), int(request.query["page_size"])
        newest = list(self.jobs.values())[::-1]
        shown = newest[page * size : (page + 1) * size]
        return web.json_response({"object": "list", "data": shown, "total": len(newest)})

    async def look(self, request: web.Request) -> web.Response:
        job = self.jobs[request.match_info["id"]]
        if job["status"] == "RUNNING":
            results = map(self.result, self.requests(job["input_files"][0]))
            job["output_file"] = self.keep("\n".join(map(json.dumps, results)).encode())
            job["completed_requests"] = job["succeeded_requests"] = job["total_requests"]
        job["status"] = {"QUEUED": "RUNNING", "RUNNING": "SUCCESS"}[job["status"]]
        return web.json_response(job)

    def result(self, one: Json) -> Json:
        assert "random_seed" in one["body"]
        said = answer("\n\n".join(each["content"] for each in one["body"]["messages"]))
        choices = [{"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}]
        body = {"choices": choices, "usage": {"prompt_tokens": 9, "completion_tokens": 3}}
        return {"id": "1", "custom_id": one["custom_id"], "response": {"status_code": 200, "body": body}, "error": None}


class GeminiApi(Jobs):
    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/upload/v1/files", self.begin_upload)
        app.router.add_post("/upload/here", self.upload)
        app.router.add_get("/v1/files/{id}:download", self.content)
        app.router.add_delete("/v1/files/{id}", self.delete)
        app.router.add_post("/v1/models/{model}:batchGenerateContent", self.create)
        app.router.add_get("/v1/batches", self.list)
        app.router.add_get("/v1/batches/{id}", self.look)
        return app

    async def begin_upload(self, request: web.Request) -> web.Response:
        return web.json_response({}, headers={"X-Goog-Upload-URL": f"http://{request.host}/upload/here"})

    async def upload(self, request: web.Request) -> web.Response:
        file = {"name": f"files/{self.keep(await request.read())}", "state": "ACTIVE"}
        return web.json_response({"file": file}, headers={"X-Goog-Upload-Status": "final"})

    async def content(self, request: web.Request) -> web.Response:
        return web.Response(body=self.files[request.match_info["id"]])

    async def delete(self, request: web.Request) -> web.Response:
        self.deleted.append(request.match_info["id"])
        return web.json_response({})

    async def create(self, request: web.Request) -> web.Response:
        asked = (await request.json())["batch"]
        source = asked["inputConfig"]["fileName"].removeprefix("files/")
        job = {"source": source, "title": asked["displayName"], "state": "BATCH_STATE_PENDING"}
        self.jobs[f"job-{len(self.jobs)}"] = job
        return self.made(request, self.document(f"job-{len(self.jobs) - 1}"))

    def document(self, name: str) -> Json:
        job = self.jobs[name]
        about: Json = {"name": f"batches/{name}", "displayName": job["title"], "state": job["state"]}
        about["createTime"] = "2026-11-22T10:00:00Z"
        if "output" in job:
            about["output"] = {"responsesFile": f"files/{job['output']}"}
        return {"name": about["name"], "metadata": about}

    async def list(self, _request: web.Request) -> web.Response:
        return web.json_response({"operations": [self.document(name) for name in reversed(self.jobs)]})

    async def look(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        job = self.jobs[name]
        if job["state"] == "BATCH_STATE_RUNNING":
            results = map(self.result, self.requests(job["source"]))
            job["output"] = self.keep("\n".join(map(json.dumps, results)).encode())
        states = {"BATCH_STATE_PENDING": "BATCH_STATE_RUNNING", "BATCH_STATE_RUNNING": "BATCH_STATE_SUCCEEDED"}
        job["state"] = states[job["state"]]
        return web.json_response(self.document(name))

    def result(self, one: Json) -> Json:
        said = answer("\n\n".join(part["text"] for each in one["request"]["contents"] for part in each["parts"]))
        candidates = [{"content": {"parts": [{"text": said}], "role": "model"}, "finishReason": "STOP"}]
        return {"key": one["key"], "response": {"candidates": candidates, "usageMetadata": {"promptTokenCount": 9}}}
