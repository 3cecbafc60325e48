"""The page's charts as SVG, one file for each kind. A chart's numbers are also in a table beside it."""
