"""Where no route answers: the methods of the path, or paths that are near, also of routers that an app includes."""

from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient

from assay.http.problems import install_handlers


def client() -> TestClient:
    router = APIRouter(prefix="/jobs")

    @router.get("")
    def jobs() -> list[str]:
        return []

    @router.post("")
    def begin() -> None: ...

    @router.get("/{job_id}")
    def job(job_id: str) -> str:
        return job_id

    app = FastAPI()
    app.include_router(router, prefix="/api")
    install_handlers(app)
    return TestClient(app)


def test_a_wrong_method_names_those_that_the_path_takes() -> None:
    wrong = client().delete("/api/jobs")
    assert (wrong.status_code, wrong.json()["detail"]) == (405, "this path takes GET or POST")
    assert wrong.headers["allow"] == "GET, POST"
    assert client().put("/api/jobs/1").json()["detail"] == "this path takes GET"


def test_an_unknown_path_names_near_ones() -> None:
    unknown = client().get("/api/job")
    assert unknown.status_code == 404
    assert unknown.json()["detail"].startswith("there is no such path; did you mean /api/jobs")
