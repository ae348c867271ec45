"""Hooks of MkDocs (mkdocs.yml): the navigation, links that leave docs/, and anchors as GitHub makes them."""

import os
import posixpath
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
# Folder of docs/ and its title, in the order of the navigation. Other folders follow by name.
SECTIONS = {"start": "Getting started", "guides": "Guides", "explain": "Explanations", "reference": "Reference",
            "examples": "Examples", "dev": "Development"}
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")
CODE = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)


def anchor(heading, separator):
    """Returns the anchor of a heading as GitHub makes it, so that a link works in the repository and on the site."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)


def navigation(pages, index):
    """Returns the pages as MkDocs' nav: index.md, then each folder. Pages come in the order in which the index links to
    them, then by name, so that a new page is never missing."""
    linked = [posixpath.normpath(target.partition("#")[0]) for _, target in LINK.findall(index)]
    place = {page: (linked.index(page) if page in linked else len(linked), page) for page in pages}
    folders = {page.split("/")[0] for page in pages if "/" in page}
    nav = sorted((page for page in pages if "/" not in page), key=lambda page: (page != "index.md", page))
    for folder in [*SECTIONS, *sorted(folders - SECTIONS.keys())]:
        of_folder = sorted((page for page in pages if page.startswith(f"{folder}/")), key=place.get)
        if of_folder:
            nav.append({SECTIONS.get(folder, folder.capitalize()): of_folder})
    return nav


def name_files_outside(markdown, page):
    """Replaces links that leave docs/ by the file's name in the repository: the site holds only docs/."""

    codes = []  # a link's text may be code, so code is put aside and put back

    def hide(match):
        codes.append(match[0])
        return f"\0{len(codes) - 1}\0"

    def show(text):
        return re.sub(r"\0(\d+)\0", lambda match: codes[int(match[1])], text)

    def replace(match):
        text, target = match.groups()
        path = target.partition("#")[0]
        file = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), path))
        if not path or re.match(r"[a-z]+:", path) or file.startswith("docs/") or not (REPOSITORY / file).exists():
            return match[0]  # MkDocs warns of a link that leads nowhere
        return text if file in show(text) else f"{text} (`{file}`)"

    return show(LINK.sub(replace, CODE.sub(hide, markdown)))


def on_config(config):
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor
    return config


def on_files(files, config):
    pages = [file.src_uri for file in files.documentation_pages() if not file.inclusion.is_excluded()]
    config.nav = navigation(pages, (Path(config.docs_dir) / "index.md").read_text())
    return files


def on_nav(nav, **_):
    if os.environ.get("KINDLING_SITE_API"):  # scripts/docs_site.sh builds it next to the pages
        from mkdocs.structure.nav import Link

        nav.items.append(Link("API reference", "api/index.html"))
    return nav


def on_page_markdown(markdown, page, **_):
    return name_files_outside(markdown, page.file.src_uri)
