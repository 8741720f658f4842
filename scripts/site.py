"""What MkDocs needs to make a site of docs/ as it is: an order of the pages, and links that leave docs/."""

import os
import re

START = ["requirements", "three-servers", "routers", "sizing", "compare", "migrate"]


def pages(docs, folder):
    return sorted(f"{folder}/{name}" for name in os.listdir(f"{docs}/{folder}") if name.endswith(".md"))


def on_config(config):
    docs = config.docs_dir
    start = [f"start/{name}.md" for name in START]
    missing = set(pages(docs, "start")) - set(start)
    if missing:
        raise SystemExit(f"site: scripts/site.py has no place for {', '.join(sorted(missing))}")
    config.nav = [
        {"Start": ["index.md", *start, "lab.md"]},
        {"Tasks": pages(docs, "operations")},
        {"Reference": [*pages(docs, "reference"), "glossary.md"]},
        {"How it works": ["architecture.md", "decisions.md", *pages(docs, "design"), "performance.md", "papers.md"]},
    ]
    return config


def on_page_markdown(markdown, page, config, files):
    """Links to files of the repository, and to folders, lead to the repository."""
    here = os.path.dirname(page.file.abs_src_path)
    root = os.path.dirname(config.config_file_path)

    def lead(match):
        target = os.path.normpath(os.path.join(here, match.group(1)))
        if not os.path.exists(target) or target.startswith(config.docs_dir + os.sep) and not os.path.isdir(target):
            return match.group(0)
        return f"]({config.repo_url.rstrip('/')}/blob/main/{os.path.relpath(target, root)}{match.group(2) or ''})"

    return re.sub(r"\]\(([^)#:\s]+)(#[^)\s]*)?\)", lead, markdown)
