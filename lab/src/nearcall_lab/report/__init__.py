"""Reports on runs, as a page, as Markdown and in a terminal. They need only stored results."""
