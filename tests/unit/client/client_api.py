"""A small api in memory that answers the client's requests, and the client and the command wired to it."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
from gpuyard.client import Client

URL = "http://api.test"
Answer = httpx.Response | Callable[[httpx.Request], httpx.Response]


def problem(status: int, code: str, detail: str, **extra: Any) -> httpx.Response:
    """An answer of application/problem+json."""
    content = {"status": status, "code": code, "title": code, "detail": detail, **extra}
    return httpx.Response(status, json=content, headers={"content-type": "application/problem+json"})


def job(job_id: str, name: str = "train", state: str = "running", **fields: Any) -> dict[str, Any]:
    """One job as the api tells it. Short ids are filled up."""
    full = f"job-{job_id.removeprefix('job-').ljust(16, 'a')}"
    base = {"job_id": full, "tenant": "acme", "name": name, "state": state, "reason": "", "detail": "", "attempt": 1, "ranks": 1}
    return {**base, "priority": "normal", "gpu": {"count": 1, "milli": 1000, "models": ["T4"]}, "placement": [], **fields}


class Api:
    """Answers by method and path: an answer is used again and again, a list of answers one after the other (the last one stays)."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Answer | list[Answer]] = {}
        self.requests: list[httpx.Request] = []
        self.pauses: list[float] = []

    def on(self, method: str, path: str, *answers: Any) -> None:
        """Answer this request; JSON content is answered with 200."""
        made = [
            answer if isinstance(answer, httpx.Response) or callable(answer) else httpx.Response(200, json=answer) for answer in answers
        ]
        self.answers[method, path] = made if len(made) > 1 else made[0]

    def jobs(self, *jobs: dict[str, Any]) -> None:
        """These jobs exist: they can be listed (by name and state) and got."""

        def listed(request: httpx.Request) -> httpx.Response:
            name, states = request.url.params.get("name"), request.url.params.get_list("state")
            found = [row for row in jobs if name in (None, row["name"]) and (not states or row["state"] in states)]
            return httpx.Response(200, json={"jobs": found, "next_cursor": None})

        self.on("GET", "/v1/jobs", listed)
        for row in jobs:
            self.on("GET", f"/v1/jobs/{row['job_id']}", row)

    def handle(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        self.requests.append(request)
        answer = self.answers.get((request.method, request.url.path))
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if answer is None:
            return problem(404, "not-found", f"there is no {request.url.path}")
        return answer(request) if callable(answer) else httpx.Response(answer.status_code, content=answer.content, headers=answer.headers)

    def client(self) -> Client:
        """A client of this api that does not really pause."""
        return Client(URL, "secret-token", handler=httpx.MockTransport(self.handle), pause=self.pauses.append)

    def patched(self) -> Callable[..., Client]:
        """What stands for `gpuyard.client.Client` where the command makes its own."""
        return partial(Client, URL, "secret-token", handler=httpx.MockTransport(self.handle), pause=self.pauses.append)

    def sent(self, method: str = "POST") -> list[Any]:
        """The bodies that were sent."""
        return [json.loads(request.content) for request in self.requests if request.method == method]
