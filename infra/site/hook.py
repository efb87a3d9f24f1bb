"""Hook of MkDocs: pages have their paths in the repository, so that links are valid there and in the site."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGES = ("*.md", "docs/**/*.*", "infra/*/README.md", "infra/topology/*.yaml", "infra/site/*.js")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Replace the files of `docs_dir`, not the theme's, by all pages and the files to which they link."""
    top = Path(str(config.config_file_path)).parent
    paths = sorted(path for pattern in PAGES for path in top.glob(pattern))
    pages = [File.generated(config, str(path.relative_to(top)), abs_src_path=str(path)) for path in paths]
    return Files([*pages, *(file for file in files if file.src_dir != config.docs_dir)])
