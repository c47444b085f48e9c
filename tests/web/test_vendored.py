"""What is not ours is as it was published, with its licence beside it."""

import hashlib

import pytest

from web.pages import STATIC, render


def test_the_library_is_as_published_and_says_whose_it_is() -> None:
    files = sorted(file.name for file in STATIC.glob("fixi*"))
    assert files == ["fixi-0.9.4.js", "fixi-0.9.4.licence.txt"]
    digest = hashlib.sha256((STATIC / "fixi-0.9.4.js").read_bytes()).hexdigest()
    licence = (STATIC / "fixi-0.9.4.licence.txt").read_text()
    assert digest in licence
    assert "Zero-Clause BSD" in licence
    assert "https://github.com/bigskysoftware/fixi" in licence


@pytest.mark.parametrize("name", ["fixi-0.9.4.js", "page.js"])
def test_a_page_has_the_script_and_no_other_of_it(name: str) -> None:
    page = render("error.html", title="t", problems=(), remedies=(), labels={})
    assert f'<script src="/static/{name}" defer></script>' in page
    assert len((STATIC / name).read_bytes()) < 8500
