"""Images over HTTP: who may load which, and files that are no images of ours."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from annotating import cast, make
from annotating import take as take_item
from typed_rows import every_part, png, take
from web_pages import running_web, signed_in

from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_web.accounts.access_file import FILE, AccessFile
from assay_web.accounts.accounts import add_account
from assay_web.accounts.passwords import Passwords
from assay_web.accounts.projects import join
from assay_web.settings import PasswordCost

CHEAP = PasswordCost(passes=1, memory_kib=256, lanes=1)
PASSWORD = "correct horse battery"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>document.title="ran"</script></svg>'


@dataclass(frozen=True)
class Planted:
    """`images`: the hash in the queue `ours`, of nora's and olga's project, and that in `theirs`, of another."""

    workspace: Workspace
    url: str
    images: dict[str, str]


@pytest.fixture(scope="module")
def planted(empty_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    folder = tmp_path_factory.mktemp("media")
    workspace = Workspace.open(shutil.copytree(empty_workspace, folder / "workspace"))
    images: dict[str, str] = {}
    for queue, colour in (("ours", "red"), ("theirs", "blue")):
        take(workspace, folder / f"{queue}.jsonl", *every_part(picture=png(colour=colour)))
        with workspace.store.unit() as db:
            new = "SELECT content_hash FROM media WHERE NOT list_contains($known, content_hash)"
            ((images[queue],),) = db.execute(new, {"known": list(images.values())}).fetchall()
            rows = db.execute(
                "SELECT comparison_id FROM comparisons JOIN prompts USING (prompt_id) WHERE contains(conversation, ?)",
                [images[queue]],
            ).fetchall()
        make(workspace, queue, [comparison for (comparison,) in rows], 2, project=f"project-{queue}")
    with AccessFile(workspace.root / FILE) as access:
        passwords = Passwords(CHEAP)
        for name, role, project in (
            ("nora", "annotator", "ours"),
            ("olga", "annotator", "ours"),
            ("vera", "viewer", "ours"),
            ("cora", "curator", "ours"),
        ):
            add_account(access, passwords, name, role, PASSWORD, by="test")  # type: ignore[arg-type]
            join(access, name, f"project-{project}")
    with running_web(workspace, open_access=False, password_cost=CHEAP) as url:
        yield Planted(workspace, url, images)


def load(client: httpx.Client, queue: str, ticket: str, content_hash: str) -> httpx.Response:
    return client.get(f"/api/annotate/queues/{queue}/items/{ticket}/media/{content_hash}")


def test_an_annotator_loads_the_images_of_the_items_they_are_asked_alone(planted: Planted) -> None:
    ours, theirs = planted.images["ours"], planted.images["theirs"]
    with signed_in(planted.url, "nora", PASSWORD) as nora, signed_in(planted.url, "olga", PASSWORD) as olga:
        item = take_item(nora, "ours")["item"]
        shown = load(nora, "ours", item["ticket"], ours)
        assert (shown.status_code, shown.headers["content-type"]) == (200, "image/png")
        for queue, ticket, content_hash in (
            ("ours", item["ticket"], theirs),  # another project's, by a ticket of one's own
            ("theirs", item["ticket"], theirs),
            ("ours", "999-1-vote", ours),
            ("ours", item["ticket"].replace("-1-vote", "-1-blind"), ours),
            ("ours", "no ticket", ours),
            ("ours", item["ticket"], "0" * len(ours)),
            ("ours", item["ticket"], "..%2f..%2fassay.duckdb"),
        ):
            assert load(nora, queue, ticket, content_hash).status_code == 404, (queue, ticket, content_hash)
        assert load(olga, "ours", item["ticket"], ours).status_code == 404, "nobody has asked olga yet"
        assert nora.get(f"/api/media/{ours}").status_code == 403, "records are not for annotators"
        cast(nora, "ours", item, "nora", choice="first").raise_for_status()
        assert load(nora, "ours", item["ticket"], ours).status_code == 200, "one's answer can be looked at again"


def test_images_are_for_people_who_are_signed_in(planted: Planted) -> None:
    with httpx.Client(base_url=planted.url) as stranger:
        assert stranger.get(f"/api/media/{planted.images['ours']}").status_code == 401
        assert load(stranger, "ours", "1-1-vote", planted.images["ours"]).status_code == 401


def test_who_reads_records_reads_their_images(planted: Planted) -> None:
    """And no session of another project, whatever records say."""
    with signed_in(planted.url, "vera", PASSWORD) as vera, signed_in(planted.url, "cora", PASSWORD) as cora:
        for person in (vera, cora):
            assert person.get(f"/api/media/{planted.images['theirs']}").status_code == 200
        assert load(cora, "theirs", "1-1-vote", planted.images["theirs"]).status_code == 404
        assert load(vera, "ours", "1-1-vote", planted.images["ours"]).status_code == 403


def test_files_that_are_no_images_of_ours_are_not_served(planted: Planted) -> None:
    """A type is said of a short list, is not guessed, and what is opened by itself runs nothing."""
    media = planted.workspace.media.root
    hashes = {ending: f"{n:x}".zfill(len(planted.images["ours"])) for n, ending in enumerate(("svg", "html", "png"), 1)}
    for ending, content_hash in hashes.items():
        path = media / content_hash[:2] / f"{content_hash}.{ending}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(SVG)
    with signed_in(planted.url, "cora", PASSWORD) as cora:
        assert cora.get(f"/api/media/{hashes['svg']}").status_code == 404
        assert cora.get(f"/api/media/{hashes['html']}").status_code == 404
        for content_hash in (hashes["png"], planted.images["ours"]):
            reply = cora.get(f"/api/media/{content_hash}")
            assert reply.headers["content-type"] == "image/png"
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert reply.headers["content-security-policy"] == "default-src 'none'; sandbox"
            assert reply.headers["cross-origin-resource-policy"] == "same-origin"
            assert reply.headers["cache-control"] == "no-store"


def test_an_svg_is_no_image_at_import(planted: Planted, tmp_path: Path) -> None:
    address = f"data:image/svg+xml;base64,{base64.b64encode(SVG).decode()}"
    with pytest.raises(BadInputError, match="not an image"):
        take(planted.workspace, tmp_path / "svg.jsonl", *every_part(picture=address))
