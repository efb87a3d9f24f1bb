"""Hook of MkDocs: pages have their paths in the repository, so that links are valid there and in the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from infra.showpiece import judged_page

Json = Any
PAGES = (
    "*.md",
    "docs/**/*.*",
    "infra/*/README.md",
    "infra/ci/*",
    "infra/topology/*.yaml",
    "infra/site/*.[cj]s*",
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace patterns in the navigation, such as `docs/findings/*.md`, by their pages; write no page 404."""
    config.nav = _expanded(config.nav, _top(config))
    # It would load style and scripts from the root of a host, which neither a disk nor a subfolder has.
    config.theme.static_templates.discard("404.html")
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Replace the files of `docs_dir`, not the theme's, by all pages, their links and the judged page."""
    top = _top(config)
    paths = sorted(path for pattern in PAGES for path in top.glob(pattern))
    pages = [File.generated(config, str(path.relative_to(top)), abs_src_path=str(path)) for path in paths]
    pages.append(File.generated(config, "docs/results/page.html", content=judged_page()))
    return Files([*pages, *(file for file in files if file.src_dir != config.docs_dir)])


def _top(config: MkDocsConfig) -> Path:
    return Path(str(config.config_file_path)).parent


def _expanded(navigation: Json, top: Path) -> Json:
    if isinstance(navigation, dict):
        return {title: _expanded(part, top) for title, part in navigation.items()}
    if isinstance(navigation, list):
        return [page for part in navigation for page in _pages(part, top)]
    return navigation


def _pages(part: Json, top: Path) -> list[Json]:
    if isinstance(part, str) and "*" in part:
        return [str(path.relative_to(top)) for path in sorted(top.glob(part))]
    return [_expanded(part, top)]
