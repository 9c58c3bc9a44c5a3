"""What the pages load is in the repository, is what npm published, and comes from nowhere else."""

import hashlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VENDORED = [ROOT / "static/vendor", ROOT / "tests/browser/vendor"]
ENTRIES = [
    (folder, entry)
    for folder in VENDORED
    for entry in json.loads((folder / "VENDOR.json").read_text())
]
FOREIGN = re.compile(
    r"""(?:src|href|action|url)\s*[=(]\s*["']?\s*(?:https?:)?//(?!www\.w3\.org/)[\w.]"""
)


@pytest.mark.parametrize(("folder", "entry"), ENTRIES, ids=[entry["name"] for _, entry in ENTRIES])
def test_a_vendored_file_is_the_one_that_was_recorded(
    folder: Path, entry: dict[str, object]
) -> None:
    files = entry["files"]
    assert isinstance(files, dict)
    place = folder / str(entry["name"]) / str(entry["version"])

    assert {file.name for file in place.iterdir()} == set(files)
    assert {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in place.iterdir()} == files
    assert "LICENSE" in files
    assert str(entry["integrity"]).startswith("sha512-")


def test_nothing_lies_in_the_vendor_folder_that_is_not_recorded() -> None:
    for folder in VENDORED:
        recorded = {(entry["name"], entry["version"]) for at, entry in ENTRIES if at == folder}
        found = {(v.parent.name, v.name) for v in folder.glob("*/*") if v.is_dir()}
        assert found == recorded


def own_files() -> list[Path]:
    files = [*(ROOT / "templates").rglob("*.html"), *(ROOT / "static").rglob("*.*")]
    return [
        file
        for file in files
        if "/vendor/" not in file.as_posix() and file.suffix in (".html", ".css", ".js", ".svg")
    ]


@pytest.mark.parametrize("file", own_files(), ids=lambda file: file.name)
def test_no_template_style_or_script_names_a_foreign_origin(file: Path) -> None:
    assert not FOREIGN.search(file.read_text())


@pytest.mark.parametrize(
    "file", [f for f in own_files() if f.suffix == ".html"], ids=lambda f: f.name
)
def test_no_template_has_inline_code_or_style(file: Path) -> None:
    text = file.read_text()

    assert not re.search(r"<[^>{%]+\s(on[a-z]+|style|hx-on[\w:.-]*)\s*=", text)
    assert "javascript:" not in text
    assert "|safe" not in text
    assert "autoescape off" not in text


def test_vendored_styles_fetch_nothing() -> None:
    for file in (ROOT / "static/vendor").rglob("*.css"):
        urls = re.findall(r"url\(\s*[\"']?([^\"')]{1,40})", file.read_text())
        assert all(url.startswith(("data:", "#")) for url in urls), file
        assert "@import" not in file.read_text()


def test_every_static_file_that_a_template_names_exists() -> None:
    for file in (ROOT / "templates").rglob("*.html"):
        for name in re.findall(r"{% static '([^']+)' %}", file.read_text()):
            assert (ROOT / "static" / name).is_file(), (file, name)


def test_every_icon_that_is_named_is_in_the_sprite() -> None:
    sprite = set(
        re.findall(r'<symbol [^>]*id="(\w+)"', (ROOT / "static/img/icons.svg").read_text())
    )
    named = {
        name
        for file in (ROOT / "templates").rglob("*.html")
        for name in re.findall(r'{% icon "(\w+)" %}', file.read_text())
    }
    tags = (ROOT / "evolution_app/templatetags/foundry.py").read_text()
    named |= set(re.findall(r'\("(\w+)", "\w*", "[\w ]+"\)', tags))

    assert named
    assert named <= sprite
