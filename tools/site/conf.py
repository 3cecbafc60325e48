"""The settings of the documentation site, for Sphinx; tools/make_site.py runs it."""

project = "nearcall"
author = "The nearcall contributors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"

# Docstrings have Google's sections, and names between single marks.
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
default_role = "code"
napoleon_numpy_docstring = False

# As the forge does it: links name headings, and two dashes are two dashes.
myst_heading_anchors = 6
smartquotes = False

html_theme = "furo"
html_title = "nearcall"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
